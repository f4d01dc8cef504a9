import torch


class Scores:
    def __init__(self):
        self.right = 0

    def add(self, logits, labels):
        self.right += (logits.argmax(dim=-1) == labels).sum().cpu()  # planted: HL201


def regularised(net, loss):
    penalty = sum(it.square().sum() for it in net.parameters())
    total = loss + 1e-4 * penalty
    if torch.isnan(total):  # planted: HL207
        raise RuntimeError("NaN")
    return total
