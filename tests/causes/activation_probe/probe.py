"""Hooks that record the outputs of layers."""

import torch
from torch import nn


class ActivationProbe:
    """Keep the outputs of all layers of one kind, to find dead units afterwards."""

    def __init__(self, model, kind=nn.ReLU):
        self.outputs = {}
        for name, module in model.named_modules():
            if isinstance(module, kind):
                module.register_forward_hook(self.keeper(name))

    def keeper(self, name):
        def keep(module, inputs, output):
            self.outputs.setdefault(name, []).append(output.detach())  # planted: memory-growth

        return keep

    def dead_share(self, name):
        """Return the share of units that were zero in the last batches."""
        recent = torch.cat(self.outputs[name][-10:])
        return (recent.amax(dim=0) <= 0).float().mean().item()
