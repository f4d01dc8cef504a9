"""What a script does between its training steps: the first evaluation that is seen, and where checkpoints are saved.

The clock says what was an evaluation, which for forwards that record gradients is known only when training goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from hotlap.records import CallSite, CheckpointFacts, EvaluationFacts
from hotlap.runtime.autocast_watch import autocast_dtype
from hotlap.runtime.call_sites import exact_user_site
from hotlap.runtime.devices import device_kind
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.interception import Interception
from hotlap.runtime.stopwatch import EVALUATION
from hotlap.runtime.unit_clock import UnitClock


class OutsideWatch:
    """Hangs on the hooks of a launch that observes. ``fetched_last`` is the loader whose batch was fetched last since a
    backward, if any, and ``mark`` is called with one whose batches turn out to have been evaluated."""

    def __init__(
        self,
        interception: Interception,
        clock: UnitClock,
        fetched_last: Callable[[], Any],
        mark: Callable[[Any], None],
    ) -> None:
        self._torch = interception.hooks.torch
        self._clock = clock
        self._fetched_last = fetched_last
        self._mark = mark
        self._loader: Any = None
        self._first: EvaluationFacts | None = None
        self._seen: EvaluationFacts | None = None  # the first forward that may have been an evaluation's
        self._forwards = self._forwards_seen = 0
        self._evaluated = False
        self._saves = 0
        self._save_site: CallSite | None = None
        hooks = interception.hooks
        hooks.before_forward.append(self._forward_begins)
        hooks.around_evaluation.append(self._evaluation)
        hooks.after_backward.append(self._forget)  # after the clock, which then knows of evaluations of one batch
        hooks.around_save.append(self._save)
        hooks.was_outside.append(self._was_outside)
        hooks.evaluated_once.append(self._was_evaluated)

    def facts(self) -> tuple[EvaluationFacts | None, CheckpointFacts | None]:
        """What was seen between the first training step and the last."""
        evaluation = None
        if self._evaluated:
            evaluation = msgspec.structs.replace(self._first or EvaluationFacts(), forwards=self._forwards)
        return evaluation, CheckpointFacts(saves=self._saves, site=self._save_site) if self._saves else None

    @property
    def seen(self) -> bool:
        """Whether an evaluation has been seen."""
        return self._evaluated

    def _forward_begins(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not root.training:
            self._note(root)
        return args, kwargs

    def _evaluation(self, root: Any, call: Fetch) -> Any:
        self._note(root)
        return call()

    def _note(self, root: Any) -> None:
        self._forwards_seen += 1
        self._loader = self._fetched_last()
        if self._first is not None or self._seen is not None:
            return
        device = device_kind(root)
        self._seen = EvaluationFacts(
            with_gradients=self._torch.is_grad_enabled(),
            autocast_dtype=autocast_dtype(self._torch, device),
            site=exact_user_site("call", type(root).__name__),
        )

    def _forget(self) -> None:
        self._seen = self._loader = None
        self._forwards_seen = 0

    def _was_outside(self, phase: int) -> None:
        if phase != EVALUATION or not self._clock.steps_done:
            self._forget()
            return
        self._was_evaluated()

    def _was_evaluated(self) -> None:
        self._evaluated = True
        # An evaluation is known by its first batch already, before any forward; of some no forward is ever seen.
        self._first = self._first or self._seen
        self._forwards += self._forwards_seen
        loader = self._loader or self._fetched_last()
        if loader is not None:
            self._mark(loader)
        self._forget()

    def _save(self, save: Fetch) -> Any:
        if self._clock.steps_done and threading.get_ident() == self._clock.trainer:
            self._saves += 1
            if self._save_site is None:
                self._save_site = exact_user_site("call", "save")
        return save()
