"""The step clock of a long run: it forgets what it has reported, waits for no device, and rests between samples.

Timing a step by phase costs some tens of microseconds (docs/benchmarks/overhead.md). Where steps are so short that this
is noticeable, only some in a row are timed; in between steps are counted, which costs less than one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hotlap.runtime.clock import Scaling, StepClock
from hotlap.runtime.hooks import CapturedStep, Fetch, Hooks
from hotlap.runtime.stopwatch import OUTSIDE

COST_SECONDS = 50e-6
"""What timing a step is taken to cost, and the share of the run that it may cost."""
ALLOWED_SHARE = 0.004
STEPS_IN_A_ROW = 8
_MOST_RESTING_STEPS = 4096


class TimedSteps:
    """Sums over steps that were timed."""

    __slots__ = ("phases", "samples", "steps", "wall_seconds")

    def __init__(self) -> None:
        self.steps = 0
        self.wall_seconds = 0.0
        self.samples = 0
        self.phases = [0.0] * OUTSIDE

    def add(self, row: list[float], samples: int) -> None:
        """Add one step, without what passed outside of it."""
        self.steps += 1
        self.samples += samples
        for phase in range(OUTSIDE):
            self.phases[phase] += row[phase]
        self.wall_seconds += sum(row[:OUTSIDE])


class LongRunClock(StepClock):
    """``all_steps`` counts those that were timed and those that were not; ``see_loss`` is called with every loss."""

    def __init__(
        self, hooks: Hooks, *, scaling: Scaling, on_step: Callable[[], None], see_loss: Callable[[Any], None]
    ) -> None:
        self.all_steps = 0
        self.resting = False
        self._tell_step = on_step
        self._in_a_row = self._rest_until = 0
        self._skips_row = False
        self._varied = 1
        self._see_loss = see_loss
        super().__init__(hooks, source="auto", scaling=scaling, on_step=self._timed_step_ended)
        self._read_loss = self._pass_on

    def _pass_on(self, loss: Any) -> None:
        self._see_loss(loss)

    def _hang_on(self, hooks: Hooks) -> None:
        hooks.around_loader_start.append(self._loader_start)
        hooks.after_optimizer.append(self._optimizer_made)
        hooks.around_fetch.append(self._fetch_or_rest)
        hooks.before_forward.append(self._forward_or_rest)
        hooks.after_forward.append(self._after_forward_or_rest)
        hooks.around_evaluation.append(self._evaluation_or_rest)
        hooks.around_save.append(self._save_or_rest)
        hooks.before_backward.append(self._backward_or_rest)
        hooks.after_backward.append(self._after_backward_or_rest)
        hooks.before_update.append(self._update_or_rest)
        hooks.after_update.append(self._after_update_or_rest)
        hooks.update_skipped.append(self._skipped_or_rest)
        hooks.replayed.append(self._replayed_or_rest)

    # -- taking what was timed -----------------------------------------------------------------

    def take(self) -> TimedSteps:
        """Take the sums over the timed steps that are complete by now, and forget them."""
        self._rows.extend(self._watch.drain_ready())
        rows, self._rows = self._rows, []
        found = TimedSteps()
        for row, samples in zip(rows, self._samples, strict=False):
            if samples >= 0:
                found.add(row, samples)
        del self._samples[: len(rows)]
        del self._losses_until[:]
        del self._losses[:]
        return found

    def rest(self, step_seconds: float) -> None:
        """Decide from the length of a step how long to rest after some steps in a row."""
        share = ALLOWED_SHARE * step_seconds / COST_SECONDS
        self._resting_steps = 0 if share >= 1 else min(_MOST_RESTING_STEPS, int(STEPS_IN_A_ROW * (1 / share - 1)))

    _resting_steps = 0

    def _timed_step_ended(self) -> None:
        if self._skips_row:
            self._samples[-1] = -1
            self._skips_row = False
        self.all_steps += 1
        self._in_a_row += 1
        # Only between two steps of the one optimizer that ends them: it is all that is followed while resting.
        may_rest = self._only_anchor is not None and len(self._phases) == 1 and self.source != "backward"
        if self._resting_steps and may_rest and self._in_a_row >= STEPS_IN_A_ROW:
            self._in_a_row = 0
            self._rest_until = self.all_steps + self._varied_rest()
            self.resting = True
        self._tell_step()

    def _varied_rest(self) -> int:
        """Half to one and a half of the rest, so that samples do not keep step with what the script does every so many
        steps. No generator of the script's is used."""
        self._varied = (self._varied * 16807) % 2147483647
        return max(1, int(self._resting_steps * (0.5 + self._varied / 2147483647)))

    def wake(self, *, within_step: bool) -> None:
        """Time steps again; one that has begun by now is not timed."""
        self.resting = False
        self._in_a_row = 0
        self._skips_row = within_step
        self._watch.restart()

    # -- the hooks, while it rests -------------------------------------------------------------

    def _fetch_or_rest(self, iterator: Any, fetch: Fetch) -> Any:
        return fetch() if self.resting else self._fetch(iterator, fetch)

    def _forward_or_rest(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (args, kwargs) if self.resting else self._forward_begins(root, args, kwargs)

    def _after_forward_or_rest(self, root: Any, output: Any) -> None:
        if not self.resting:
            self._forward_ends(root, output)

    def _evaluation_or_rest(self, root: Any, call: Fetch) -> Any:
        return call() if self.resting else self._evaluation(root, call)

    def _save_or_rest(self, save: Fetch) -> Any:
        return save() if self.resting else self._save(save)

    def _backward_or_rest(self, loss: Any) -> Any:
        return loss if self.resting else self._backward_begins(loss)

    def _after_backward_or_rest(self) -> None:
        if not self.resting:
            self._backward_ends()

    def _update_or_rest(self, optimizer: Any) -> None:
        if not self.resting:
            self._update_begins(optimizer)

    def _after_update_or_rest(self, optimizer: Any) -> None:
        if not self.resting:
            self._update_ends(optimizer)
        else:
            self._counted(optimizer)

    def _skipped_or_rest(self, optimizer: Any) -> None:
        if not self.resting:
            self._update_skipped(optimizer)
        else:
            self._counted(optimizer)

    def _replayed_or_rest(self, captured: CapturedStep) -> None:
        if self.resting:
            self.wake(within_step=True)
        self._replayed(captured)

    def _counted(self, optimizer: Any) -> None:
        if self._only_anchor != id(optimizer):  # another one begins to step
            ends_step = self._is_anchor(id(optimizer))
            self.wake(within_step=not ends_step)
            if not ends_step:
                return
        self.all_steps += 1
        self.steps_done += 1
        if self.resting and self.all_steps >= self._rest_until:
            self.wake(within_step=False)
        self._tell_step()
