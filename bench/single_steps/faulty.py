"""Run a training script with a fault planted in it: ``python faulty.py FAULT SCRIPT [arguments of the script]``.

The fault is hung on torch's own hooks of optimizers, so that any script can have it.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

NONE = "none"


def _weights(optimizer: Any) -> list[Any]:
    return [it for group in optimizer.param_groups for it in group["params"] if it.grad is not None]


def _middle(optimizer: Any) -> Any:
    """A matrix in the middle of the network."""
    matrices = [it for it in _weights(optimizer) if it.dim() > 1]
    return matrices[len(matrices) // 2]


def _rate(optimizer: Any, *_: Any) -> None:
    """The learning rate is 2 % too high, and between steps as it should be."""
    for group in optimizer.param_groups:
        group["lr"] *= 1.02


def _usual_rate(optimizer: Any, *_: Any) -> None:
    for group in optimizer.param_groups:
        group["lr"] /= 1.02


def _lose(optimizer: Any, *_: Any) -> None:
    """The gradient of one matrix is lost."""
    _middle(optimizer).grad.zero_()


def _scale(optimizer: Any, *_: Any) -> None:
    """The gradient of one matrix is a fifth too large."""
    _middle(optimizer).grad.mul_(1.2)


_PREVIOUS: dict[int, Any] = {}


def _accumulate(optimizer: Any, *_: Any) -> None:
    """A tenth of the last step's gradient is still there."""
    for it in _weights(optimizer):
        own = it.grad.clone()
        if id(it) in _PREVIOUS:
            it.grad.add_(_PREVIOUS[id(it)], alpha=0.1)
        _PREVIOUS[id(it)] = own


def _round(optimizer: Any, *_: Any) -> None:
    """Weights are kept in bfloat16."""
    with torch.no_grad():
        for it in _weights(optimizer):
            it.copy_(it.bfloat16())


BEFORE: dict[str, Callable[..., None]] = {
    "learning rate 2 % too high": _rate,
    "one matrix without a gradient": _lose,
    "one gradient 20 % too large": _scale,
    "10 % of the last gradient": _accumulate,
}
AFTER: dict[str, Callable[..., None]] = {
    "learning rate 2 % too high": _usual_rate,
    "weights kept in bfloat16": _round,
}
FAULTS = tuple(dict.fromkeys((*BEFORE, *AFTER)))


def main() -> None:
    """Plant the fault, and run the script as its user does."""
    fault, script, *arguments = sys.argv[1:]
    if fault in BEFORE:
        register_optimizer_step_pre_hook(BEFORE[fault])
    if fault in AFTER:
        register_optimizer_step_post_hook(AFTER[fault])
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
