"""Write a record of every step as a line of JSON."""

import json
import os


def summary(tensor, bins=16):
    """Return moments and a histogram of a tensor."""
    values = tensor.detach().float()
    return {
        "mean": values.mean().item(),  # hint: reads-in-every-step
        "std": values.std().item(),
        "histogram": values.histc(bins).tolist(),
    }


class StepLog:
    def __init__(self, path):
        self.file = path.open("w", encoding="utf-8")

    def record(self, step, loss, model):
        gradients = {name: summary(it.grad) for name, it in model.named_parameters()}
        json.dump({"step": step, "loss": loss.item(), "gradients": gradients}, self.file)  # planted: logging-cost
        self.file.write("\n")
        self.file.flush()
        os.fsync(self.file.fileno())
