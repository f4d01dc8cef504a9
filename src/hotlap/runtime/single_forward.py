"""A single forward pass in evaluation mode that records gradients: an evaluation of one batch, or a part of training?

Two such passes in a row are an evaluation's loop. Of one alone that is known only after the next backward pass: it was
a part of training if that pass went through what it returned, or if nearly every step has one (a model that is its own
teacher).
"""

from __future__ import annotations

from typing import Any

from hotlap.levers.support.structures import named_tensors

FEWEST_STEPS_BETWEEN = 3
"""An evaluation comes after at least so many steps."""


class SingleForward:
    """The last such forward pass. ``waits``: training went on after it, and its next backward pass decides.

    ``fetched`` and ``forwarded`` are the samples that were fetched and passed forward until its end.
    """

    def __init__(self) -> None:
        self.waits = False
        self.fetched = self.forwarded = 0
        self._used = True
        self._last_step = 0

    def returned(self, output: Any) -> None:
        """Watch whether a backward pass goes through this output; without a tensor to watch it counts as used."""
        tensors = [it for _, it in named_tensors(output) if it.requires_grad and it.grad_fn is not None]
        self._used = not tensors
        for it in tensors:
            it.register_hook(self._use)

    def _use(self, gradient: Any) -> None:
        self._used = True

    def training_goes_on(self, steps_done: int, fetched: int, forwarded: int) -> bool:
        """Whether it may have been an evaluation, since none was seen in the last steps."""
        rare = steps_done - self._last_step >= FEWEST_STEPS_BETWEEN
        self._last_step = steps_done
        self.waits = rare and not self._used
        self.fetched, self.forwarded = fetched, forwarded
        return self.waits

    def was_evaluation(self) -> bool:
        """After the backward pass: whether it did not go through the output."""
        self.waits = False
        return not self._used
