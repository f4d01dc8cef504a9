"""The overhead of autocast for each call of a layer, whatever its size.

Runs in the child process of :mod:`hotlap.machine.ceilings`. Under autocast a layer's weight, bias and input are
converted by operators of their own, and their gradients converted back by further ones, each of which autograd records
and runs. For a layer of a few numbers this is all that autocast does, so the extra time of such layers is the overhead
of a call. What autocast converts is documented in `Automatic Mixed Precision
<https://docs.pytorch.org/docs/stable/amp.html>`_.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hotlap.machine.products import DeviceClock

if TYPE_CHECKING:
    import torch

_SIDE = 16
_LAYERS = 16
_ROUNDS = 40


def measure_autocast_calls(
    formats: Sequence[str], clock: DeviceClock, threads: int = 1
) -> tuple[tuple[str, float], ...]:
    """What autocast in each format adds to a small layer's forward and backward on the processor, in seconds: pairs
    with keys such as ``cpu:bfloat16``. The formats take turns, and the best of each counts. A format that this torch's
    autocast refuses is left out."""
    import torch

    torch.set_num_threads(threads)
    stack = _Stack()
    able = [name for name in formats if name != "float32" and _works(stack, name)]
    best = dict.fromkeys(["", *able], float("inf"))
    for _ in range(_ROUNDS):
        for name, least in best.items():
            best[name] = min(least, clock.seconds(lambda name=name: stack.step(name)))  # type: ignore[misc]
    return tuple((f"cpu:{name}", max(0.0, best[name] - best[""]) / _LAYERS) for name in able)


class _Stack:
    """Layers one after the other, each with weights of its own: autocast converts a weight once in a forward pass."""

    def __init__(self) -> None:
        import torch

        self._layers = torch.nn.ModuleList(torch.nn.Linear(_SIDE, _SIDE) for _ in range(_LAYERS))
        self._batch = torch.randn(_SIDE, _SIDE)

    def step(self, dtype: str) -> None:
        """Forward and backward, under autocast unless the format's name is empty."""
        import torch

        used: torch.dtype | None = getattr(torch, dtype) if dtype else None
        with torch.autocast("cpu", dtype=used, enabled=used is not None):
            output = self._batch
            for layer in self._layers:
                output = layer(output)
        torch.autograd.backward(output.sum())
        self._layers.zero_grad(set_to_none=True)


def _works(stack: _Stack, dtype: str) -> bool:
    try:
        stack.step(dtype)
    except RuntimeError:
        return False
    return True
