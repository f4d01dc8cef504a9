class AverageMeter:
    def __init__(self):
        self.sum = 0.0
        self.count = 0

    def update(self, value, n=1):
        self.sum += value.item() * n  # planted: HL201
        self.count += n

    def average(self):
        return self.sum / max(1, self.count)


def accuracy(output, target):
    predicted = output.argmax(dim=1)
    right = (predicted == target).float().mean()
    print("batch accuracy", right)  # planted: HL202
    return right
