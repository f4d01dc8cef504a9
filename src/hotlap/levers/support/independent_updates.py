"""Optimizers that can update some of their weights without the others. Not a lever."""

from __future__ import annotations

from typing import Any

KINDS = ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
"""torch's optimizers whose update of a weight depends only on its own gradient."""


def reason_against(optimizer: Any) -> str:
    """Why this optimizer cannot update a part of its weights; empty if it can."""
    kind = type(optimizer)
    if kind.__name__ not in KINDS or not kind.__module__.startswith("torch.optim"):
        return f"{kind.__name__} may not update each weight independently"
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return f"{kind.__name__} is differentiable"
    return ""
