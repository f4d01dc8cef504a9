import torch
from utils import AverageMeter, accuracy, check_finite


def train_one_epoch(model, criterion, optimizer, loader, device, epoch):
    model.train()
    losses, top1 = AverageMeter(), AverageMeter()
    for step, (images, target) in enumerate(loader):
        images, target = images.to(device), target.to(device)
        output = model(images)
        loss = criterion(output, target)
        check_finite(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.update(loss, images.size(0))
        top1.update(accuracy(output, target), images.size(0))
        if step % 50 == 0:
            print(f"epoch {epoch} step {step} loss {losses.average():.3f}")


@torch.no_grad()
def evaluate(model, criterion, loader, device):
    model.eval()
    right = torch.zeros((), device=device)
    total = 0
    for images, target in loader:
        output = model(images.to(device))
        right += (output.argmax(1) == target.to(device)).sum()
        total += len(target)
    return right.item() / total
