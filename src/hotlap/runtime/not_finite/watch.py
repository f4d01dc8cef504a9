"""Looking in every step at what must be finite: the loss that a backward starts from, the gradients that an update
really uses, and the weights after it.

An update that a gradient scaler leaves out uses no gradients, so what overflowed there is no find. Weights that were
not finite before the first update (a row kept at minus infinity, say) are the script's own doing.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import torch

from hotlap.records import BadNumber, CallSite
from hotlap.runtime.call_sites import user_site
from hotlap.runtime.clock import StepClock
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.interception import Interception
from hotlap.runtime.not_finite.check import OperationCheck
from hotlap.runtime.not_finite.descent import NOTHING, Descent, blame
from hotlap.runtime.not_finite.ranges import all_finite, extremes, has_nan, is_capturing, is_finite
from hotlap.runtime.not_finite.whereabouts import Whereabouts

Found: TypeAlias = Callable[[BadNumber], object]
Place: TypeAlias = Literal["loss", "gradients", "weights", "script"]


class NumbersWatch:
    """Calls ``found`` at the first number that is not finite; ``found`` ends the process. From step ``check_from`` on
    (None: never) every operation is checked, so that it is known where the number came from."""

    def __init__(self, interception: Interception, clock: StepClock, check_from: int | None, found: Found) -> None:
        self._interception = interception
        self._clock = clock
        self._found = found
        self._optimizers: set[int] = set()
        self._ignored: set[int] = set()
        self._check: OperationCheck | None = None
        hooks = interception.hooks
        if check_from is not None:
            self._prepare_check(check_from)
        hooks.before_backward.append(self._backward_begins)
        hooks.before_update.append(self._update_begins)
        # First of all, since the clock may end the process at the end of a step.
        hooks.after_update.insert(0, self._update_ended)

    def stop(self) -> None:
        """Check no more operations, and say nothing when the process ends."""
        if self._check is not None:
            self._check.stop()
            atexit.unregister(self._script_ended)

    def _prepare_check(self, check_from: int) -> None:
        switch_compiling_off()
        self._check_from = check_from
        self._process = os.getpid()
        self._check = OperationCheck(Whereabouts(self._interception, self._clock))
        self._loaders: dict[int, CallSite | None] = {}
        self._interception.hooks.after_loader.append(self._loader_made)
        self._interception.hooks.around_fetch.append(self._fetch)
        self._interception.hooks.step_ended.append(self._step_ended)
        atexit.register(self._script_ended)
        if check_from == 0:
            self._check.start()

    # -- what the hooks tell -------------------------------------------------------------------

    def _loader_made(self, loader: Any) -> None:
        self._loaders[id(loader.dataset)] = user_site("loader", type(loader).__name__)

    def _fetch(self, iterator: Any, fetch: Fetch) -> Any:
        batch = fetch()
        if self._check is not None and self._check.started:
            dataset = getattr(iterator, "_dataset", None)
            self._check.batch_arrived(batch, type(dataset).__name__, self._loaders.get(id(dataset)))
        return batch

    def _step_ended(self) -> None:
        check = self._check
        if check is not None and not check.started and self._clock.steps_done >= self._check_from:
            check.start()

    def _backward_begins(self, loss: Any) -> Any:
        losses = [loss] if isinstance(loss, torch.Tensor) else list(loss)
        unscaled = [self._interception.before_scaling(it) for it in losses]
        self._look("loss", [(it, it) for it in unscaled if isinstance(it, torch.Tensor) and it.numel() == 1])
        return loss

    def _update_begins(self, optimizer: Any) -> None:
        parameters = _parameters(optimizer)
        if id(optimizer) not in self._optimizers:
            self._optimizers.add(id(optimizer))
            with self._aside():
                self._ignored.update(id(it) for it in parameters if not is_finite(extremes(it)))
        if not _is_left_out(optimizer):
            self._look("gradients", [(it, it.grad) for it in parameters if it.grad is not None])

    def _update_ended(self, optimizer: Any) -> None:
        self._look("weights", [(it, it) for it in _parameters(optimizer) if id(it) not in self._ignored])

    def _script_ended(self) -> None:
        """Scripts end by themselves when they see NaN: what they looked at last is then the find."""
        look = self._check.last_look if self._check is not None else None
        if look is not None and os.getpid() == self._process and look.step >= self._clock.steps_done - 1:
            self._tell("script", look.nan, "", look.descent, look.step)

    # -- the find ------------------------------------------------------------------------------

    def _look(self, where: Place, owned: Sequence[tuple[Any, Any]]) -> None:
        """Look at tensors, each with the parameter that it belongs to."""
        with self._aside():
            if is_capturing() or all_finite(tensor for _, tensor in owned):
                return
            bad = [(owner, it, extent) for owner, it in owned if not is_finite(extent := extremes(it))]
            nan = any(has_nan(extent) for _, _, extent in bad)
            checked = self._check is not None and self._check.started
            descent = self._check.descent([it for _, it, _ in bad]) if self._check is not None and checked else NOTHING
            self._tell(where, nan, self._name_of(bad[0][0]), descent, self._clock.steps_done)

    def _tell(self, where: Place, nan: bool, name: str, descent: Descent, step: int) -> None:
        blamed = blame(descent, nan)
        self._found(
            BadNumber(
                step=step,
                noticed_in=where,
                nan=nan,
                name=name,
                origin=blamed.origin,
                first_nan=blamed.first_nan,
                written=blamed.written,
            )
        )

    def _aside(self) -> Any:
        return self._check.aside() if self._check is not None else torch.no_grad()

    def _name_of(self, parameter: Any) -> str:
        for root in self._interception.roots.all():
            for name, it in root.named_parameters():
                if it is parameter:
                    return str(name.removeprefix("_orig_mod."))
        return ""


def switch_compiling_off() -> None:
    """Have ``torch.compile`` give back what it is given: what a compiled graph computes inside cannot be seen. Works
    as long as nothing was compiled; the variables are read when the compiler is loaded, and by new processes."""
    os.environ["TORCH_COMPILE_DISABLE"] = os.environ["TORCHDYNAMO_DISABLE"] = "1"
    configuration = sys.modules.get("torch._dynamo.config")
    if configuration is not None:
        configuration.disable = True  # type: ignore[attr-defined]


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _is_left_out(optimizer: Any) -> bool:
    """Whether a gradient scaler has told an optimizer with such a switch (a fused one) to change nothing this time."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and float(found) != 0
