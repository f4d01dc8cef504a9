import torch


class Report:
    def __init__(self):
        self.seen = []

    def add(self, values):
        for name, value in values.items():
            self.seen.append((name, value.item()))  # planted: HL201


def perplexity(loss):
    return torch.exp(loss).item()  # planted: HL201
