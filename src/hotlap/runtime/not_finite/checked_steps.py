"""The steps in which every operation is checked: from when on, what the loader brings in, and a script that ends there.

torch.compile is switched off for the whole run, since what a compiled graph computes inside cannot be seen.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from hotlap.records import BadNumber, CallSite
from hotlap.runtime.call_sites import user_site
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.interception import Interception
from hotlap.runtime.not_finite.check import OperationCheck
from hotlap.runtime.not_finite.descent import NOTHING, Descent, bad_number
from hotlap.runtime.not_finite.whereabouts import Whereabouts
from hotlap.runtime.unit_clock import UnitClock


class CheckedSteps:
    """Checks every operation from step ``first`` on, 0 being from now on: before the script's own first line.

    Scripts end by themselves when they see NaN. What they checked last is then the result, and ``found`` is called with
    it.
    """

    def __init__(
        self, interception: Interception, clock: UnitClock, first: int, found: Callable[[BadNumber], object]
    ) -> None:
        switch_compiling_off()
        self._clock = clock
        self._first = first
        self._found = found
        self._process = os.getpid()
        self._loaders: dict[int, CallSite | None] = {}
        self._check = OperationCheck(Whereabouts(interception, clock))
        hooks = interception.hooks
        hooks.after_loader.append(self._loader_made)
        hooks.around_fetch.append(self._fetch)
        hooks.step_ended.append(self._step_ended)
        atexit.register(self.script_ended)
        if first == 0:
            self._check.start()

    def stop(self) -> None:
        """Check no more, and say nothing when the process ends."""
        self._check.stop()
        atexit.unregister(self.script_ended)

    def aside(self) -> AbstractContextManager[None]:
        """Leave what is computed in there unchecked, and record no gradients of it."""
        return self._check.aside()

    def descent(self, tensors: Sequence[Any]) -> Descent:
        """Where the numbers of these tensors came from, as far as it was checked."""
        return self._check.descent(tensors) if self._check.started else NOTHING

    # -- what the hooks tell -------------------------------------------------------------------

    def _loader_made(self, loader: Any) -> None:
        self._loaders[id(loader.dataset)] = user_site("loader", type(loader).__name__)

    def _fetch(self, iterator: Any, fetch: Fetch) -> Any:
        batch = fetch()
        if self._check.started:
            dataset = getattr(iterator, "_dataset", None)
            self._check.batch_arrived(batch, type(dataset).__name__, self._loaders.get(id(dataset)))
        return batch

    def _step_ended(self) -> None:
        if not self._check.started and self._clock.steps_done >= self._first:
            self._check.start()

    def script_ended(self) -> None:
        """The script has ended, by itself or by an exception."""
        look = self._check.last_look
        if look is not None and os.getpid() == self._process and look.step >= self._clock.steps_done - 1:
            self._found(bad_number("script", look.step, look.nan, look.descent))


def switch_compiling_off() -> None:
    """Have ``torch.compile`` give back what it is given. Works as long as nothing was compiled; the variables are read
    when the compiler is loaded, and by new processes."""
    os.environ["TORCH_COMPILE_DISABLE"] = os.environ["TORCHDYNAMO_DISABLE"] = "1"
    configuration: Any = sys.modules.get("torch._dynamo.config")
    if configuration is not None:
        configuration.disable = True
