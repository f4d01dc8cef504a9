"""What the computations share: their list, layers that stay the same, and a training step of a model of its own."""

import dataclasses
import functools

import torch
from torch import nn

CASES = {"": [], "compiled": [], "optimizers": []}


def case(function, group=""):
    CASES[group].append(function)
    return function


@functools.cache
def layer(name, *sizes):
    """The same layer in each step."""
    torch.manual_seed(0)
    return getattr(nn, name)(*sizes)


def inputs(*sizes, grad=False):
    return torch.randn(*sizes, requires_grad=grad)


def trained(module, *arguments, **named):
    """A step of a model of its own: forward, backward, and what the gradients are."""
    module.zero_grad()
    loss = first_tensor(module(*arguments, **named)).float().square().mean()
    loss.backward()
    return sum(it.grad.abs().sum() for it in module.parameters() if it.grad is not None) + loss.detach()


def first_tensor(value):
    if isinstance(value, torch.Tensor):
        return value.values() if value.is_nested and value.layout is torch.jagged else value
    if isinstance(value, dict):
        return first_tensor(next(iter(value.values())))
    if dataclasses.is_dataclass(value):
        return first_tensor(next(iter(vars(value).values())))
    return first_tensor(next(iter(value)))


class Wrapped(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.inner, self._call = layer("Linear", 8, 8), call

    def forward(self, *args, **kwargs):
        return self._call(self, *args, **kwargs)
