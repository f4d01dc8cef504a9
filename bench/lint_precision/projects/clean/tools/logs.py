def log(epoch, value):
    print(f"{epoch}: {value:.3f}")


def debug(loss):
    print(loss.item())
