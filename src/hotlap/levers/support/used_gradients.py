"""Gradients that an update has used, and that are held until the script clears them. Not a lever itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

CLEAN_STEPS = 2
"""Gradients count as unneeded once this many steps have shown that the script clears them before its next backward."""


class UsedGradients:
    """The gradients of the optimizers that have updated since the last backward pass.

    An optimizer of which a gradient is still there when the next backward pass begins adds to it, or fills it with
    zeros: its gradients count as needed from then on.
    """

    def __init__(self) -> None:
        self._updated: dict[int, Any] = {}
        self._clean: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._needed: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()

    @property
    def needed(self) -> bool:
        """Whether an optimizer's gradients were not cleared before a backward pass."""
        return bool(self._needed)

    def updated(self, optimizer: Any) -> None:
        """An update is over: it has used its gradients."""
        self._updated[id(optimizer)] = optimizer

    def backward_begins(self, loss: Any) -> Any:
        """Note whose gradients the script has cleared since their update."""
        for optimizer in self._updated.values():
            if any(True for _ in _weights_with_gradients(optimizer)):
                self._needed[optimizer] = True
            else:
                self._clean[optimizer] = self._clean.get(optimizer, 0) + 1
        self._updated.clear()
        return loss

    def held_bytes(self) -> int:
        """The size of all gradients that were used and are still held."""
        held = [it.grad for optimizer in self._updated.values() for it in _weights_with_gradients(optimizer)]
        return sum(it.numel() * it.element_size() for it in held)

    def drop(self) -> None:
        """Drop the used gradients of each optimizer that has shown that they are not needed."""
        for optimizer in self._updated.values():
            if optimizer not in self._needed and self._clean.get(optimizer, 0) >= CLEAN_STEPS:
                for weight in _weights_with_gradients(optimizer):
                    weight.grad = None


def _weights_with_gradients(optimizer: Any) -> Iterator[Any]:
    return (it for group in optimizer.param_groups for it in group["params"] if it.grad is not None)
