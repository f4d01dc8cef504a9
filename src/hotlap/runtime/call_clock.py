"""The step clock of an inference target: each call of its model is a step.

A call counts as the phase ``forward``; its inputs' conversions by levers and the consumption of its output are part
of it, as they are of the latency that a user of the model sees. The time between two calls is ``other``. Where a whole
pass over all inputs is the unit of work, several calls are a step.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hotlap.records import Steps
from hotlap.runtime.batches import leading_size
from hotlap.runtime.clock import StepClock
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.stopwatch import FORWARD


class CallClock(StepClock):
    """Follows calls instead of a training loop. Samples are the leading size of a call's first tensor or, of
    ``generate()``, the tokens that it added."""

    def _hang_on(self, hooks: Hooks) -> None:
        self._hooks = hooks
        hooks.before_forward.append(self._call_begins)
        hooks.part_ended.append(self.leave)
        hooks.call_ended.append(self._call_ended)

    @property
    def counted(self) -> Literal["optimizer", "backward", "call"]:
        return "call"

    def counts_backwards(self) -> bool:
        """Never: nothing within a model's call is a step."""
        return False

    def _call_begins(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not self._stopwatch_chosen:
            self._choose_stopwatch(model)
        self._step_forwarded += leading_size(args) or leading_size(kwargs)
        self.enter(FORWARD)
        return args, kwargs

    def _call_ended(self) -> None:
        self.leave()
        if self._hooks.generation is not None:
            self._step_forwarded = self._hooks.generation.call_ended()
            self._forwarded_source = "tokens"
        self._end_step()

    def steps(self) -> Steps:
        """The account so far, with the times of tokens; call :meth:`drain` first."""
        found, tokens = super().steps(), self._hooks.generation
        if tokens is None:
            return found
        count = len(found.wall_seconds)
        return msgspec.structs.replace(
            found,
            first_token_seconds=tuple(tokens.first_token_seconds[:count]),
            token_seconds=tuple(tokens.token_seconds[:count]),
        )
