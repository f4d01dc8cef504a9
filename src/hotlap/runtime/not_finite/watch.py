"""Checking in every step what must be finite: the loss that a backward starts from, the gradients that an update
really uses, and the weights after it.

An update that a gradient scaler leaves out uses no gradients, so what overflowed there is no find. Weights that were
not finite before the first update (a row kept at minus infinity, say) are the script's own doing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hotlap.records import BadNumber, NoticedIn
from hotlap.runtime.interception import Interception
from hotlap.runtime.not_finite.checked_steps import CheckedSteps
from hotlap.runtime.not_finite.descent import NOTHING, bad_number
from hotlap.runtime.not_finite.ranges import all_finite, extremes, has_nan, is_capturing, is_finite
from hotlap.runtime.unit_clock import UnitClock


class NumbersWatch:
    """Calls ``found`` at the first number that is not finite; ``found`` ends the process. From step ``check_from`` on
    (None: never) every operation is checked, so that it is known where the number came from."""

    def __init__(
        self,
        interception: Interception,
        clock: UnitClock,
        check_from: int | None,
        found: Callable[[BadNumber], object],
    ) -> None:
        self._roots = interception.roots
        self._before_scaling = interception.before_scaling
        self._clock = clock
        self._found = found
        self._optimizers: set[int] = set()
        self._bad_from_the_start: set[int] = set()
        self.checked = CheckedSteps(interception, clock, check_from, found) if check_from is not None else None
        self._aside = self.checked.aside if self.checked is not None else torch.no_grad
        hooks = interception.hooks
        hooks.before_backward.append(self._backward_begins)
        hooks.before_update.append(self._update_begins)
        # First of all, since the clock may end the process at the end of a step.
        hooks.after_update.insert(0, self._update_ended)

    def stop(self) -> None:
        """Check no more operations, and say nothing when the process ends."""
        if self.checked is not None:
            self.checked.stop()

    # -- what the hooks tell -------------------------------------------------------------------

    def _backward_begins(self, loss: Any) -> Any:
        losses = [loss] if isinstance(loss, torch.Tensor) else list(loss)
        unscaled = [self._before_scaling(it) for it in losses]
        self._look("loss", [(it, it) for it in unscaled if isinstance(it, torch.Tensor) and it.numel() == 1])
        return loss

    def _update_begins(self, optimizer: Any) -> None:
        parameters = _parameters(optimizer)
        if id(optimizer) not in self._optimizers:
            self._optimizers.add(id(optimizer))
            with self._aside():
                self._bad_from_the_start.update(id(it) for it in parameters if not is_finite(extremes(it)))
        if not _is_left_out(optimizer):
            self._look("gradients", [(it, it.grad) for it in parameters if it.grad is not None])

    def _update_ended(self, optimizer: Any) -> None:
        sound = [it for it in _parameters(optimizer) if id(it) not in self._bad_from_the_start]
        self._look("weights", [(it, it) for it in sound])

    # -- the find ------------------------------------------------------------------------------

    def _look(self, where: NoticedIn, owned: Sequence[tuple[Any, Any]]) -> None:
        """Look at tensors, each with the parameter that it belongs to."""
        with self._aside():
            if is_capturing() or all_finite(tensor for _, tensor in owned):
                return
            bad = [(owner, it, extent) for owner, it in owned if not is_finite(extent := extremes(it))]
            nan = any(has_nan(extent) for _, _, extent in bad)
            descent = self.checked.descent([it for _, it, _ in bad]) if self.checked is not None else NOTHING
            self._found(bad_number(where, self._clock.steps_done, nan, descent, self._name_of(bad[0][0])))

    def _name_of(self, parameter: Any) -> str:
        for root in self._roots.all():
            for name, it in root.named_parameters():
                if it is parameter:
                    return str(name.removeprefix("_orig_mod."))
        return ""


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _is_left_out(optimizer: Any) -> bool:
    """Whether a gradient scaler has told an optimizer with such a switch (a fused one) to change nothing this time."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and float(found) != 0
