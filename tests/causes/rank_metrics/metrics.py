"""Metrics over all ranks."""

import torch
import torch.distributed as dist


class ClassAccuracy:
    """Accuracy of each class over all ranks."""

    def __init__(self, classes):
        self.classes = classes
        self.correct = [torch.zeros(()) for _ in range(classes)]
        self.seen = [torch.zeros(()) for _ in range(classes)]

    def update(self, predicted, labels):
        for label in range(self.classes):
            of_class = labels == label
            counts = torch.stack([(of_class & (predicted == label)).sum(), of_class.sum()]).float()
            dist.all_reduce(counts)  # planted: other-time
            self.correct[label] += counts[0]
            self.seen[label] += counts[1]

    def compute(self):
        return [(right / max(seen, 1)).item() for right, seen in zip(self.correct, self.seen, strict=True)]
