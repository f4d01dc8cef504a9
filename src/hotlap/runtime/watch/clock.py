"""The step clock of a long run: it forgets what it has reported, waits for no device, and rests between samples.

Timing a step by phase costs some tens of microseconds (docs/benchmarks/overhead.md), and more right after a rest, when
nothing of it is in the processor's caches. Where steps are so short that this is noticeable, only some in a row are
timed. In between the clock takes its hooks out of what passes in every step, and one closure counts the updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hotlap.runtime.clock import Scaling, StepClock
from hotlap.runtime.hooks import CapturedStep, Fetch, Hooks
from hotlap.runtime.stopwatch import OUTSIDE

COST_SECONDS = 50e-6
"""What timing a step is taken to cost, and the share of the run that it may cost."""
ALLOWED_SHARE = 0.001
STEPS_IN_A_ROW = 8
_MOST_RESTING_STEPS = 4096
_UNTOLD_STEPS = 16
"""While it rests only one of so many steps looks whether a row is due."""


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
        self._known_steps = 0
        self.resting = False
        self._tell_step = on_step
        self._in_a_row = self._rest_until = 0
        self._skips_row = False
        self._varied = 1
        self._updates = 0  # reports of updates in this step: a class whose step calls its parent's makes two
        self._updates_per_step = 1
        self._passed_updates: Callable[[], int] = _none
        self._see_loss = see_loss
        super().__init__(hooks, source="auto", scaling=scaling, on_step=self._timed_step_ended)
        self._read_loss = self._pass_on

    @property
    def all_steps(self) -> int:
        """Steps so far, timed or not."""
        return self._known_steps + self._passed_updates() // self._updates_per_step

    def _pass_on(self, loss: Any) -> None:
        self._see_loss(loss)

    def _hang_on(self, hooks: Hooks) -> None:
        self._hooks = hooks
        # The same objects each time: by them the hooks are found among others.
        self._in_steps: tuple[tuple[str, Callable[..., Any]], ...] = (
            ("around_fetch", self._fetch),
            ("before_forward", self._forward_begins),
            ("after_forward", self._forward_ends),
            ("around_evaluation", self._evaluation),
            ("before_backward", self._backward_begins),
            ("after_backward", self._backward_ends),
            ("before_update", self._update_begins),
        )
        for name, own in self._in_steps:
            getattr(hooks, name).append(own)
        self._left_behind: dict[str, Any] = {}
        hooks.around_loader_start.append(self._loader_start)
        hooks.after_optimizer.append(self._optimizer_made)
        hooks.around_save.append(self._save_or_rest)
        self._at_updates: Callable[[Any], None] = self._update_ends
        hooks.after_update.append(self._at_updates)
        hooks.update_skipped.append(self._skipped_or_rest)
        hooks.replayed.append(self._replayed_or_rest)

    def _take_hooks_out(self) -> None:
        """Leave the lists of what passes in every step. Each becomes another list: one may be walked through by now."""
        for name, own in self._in_steps:
            hooks: list[Any] = getattr(self._hooks, name)
            index = next(it for it, hook in enumerate(hooks) if hook is own)
            self._left_behind[name] = hooks[index - 1] if index else None
            setattr(self._hooks, name, [*hooks[:index], *hooks[index + 1 :]])

    def _put_hooks_back(self) -> None:
        """Return to the same place: behind the hook that was before."""
        for name, own in self._in_steps:
            hooks: list[Any] = getattr(self._hooks, name)
            before = self._left_behind[name]
            index = next((it + 1 for it, hook in enumerate(hooks) if hook is before), 0)
            setattr(self._hooks, name, [*hooks[:index], own, *hooks[index:]])

    def _see_updates_by(self, hook: Callable[[Any], None]) -> None:
        """Replace the hook behind updates where it stands, in another list."""
        self._hooks.after_update = [hook if it is self._at_updates else it for it in self._hooks.after_update]
        self._at_updates = hook

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
        self._known_steps += 1
        self._in_a_row += 1
        self._updates_per_step = self._updates or self._updates_per_step
        self._updates = 0
        # Only between two steps of the one optimizer that ends them: it is all that is followed while resting.
        may_rest = self._only_anchor is not None and len(self._phases) == 1 and self.source != "backward"
        if self._resting_steps and may_rest and self._in_a_row >= STEPS_IN_A_ROW:
            self._in_a_row = 0
            self._rest_until = self._known_steps + self._varied_rest()
            self.resting = True
            self._take_hooks_out()
            self._count_updates()
        self._tell_step()

    def _varied_rest(self) -> int:
        """Half to one and a half of the rest, so that samples do not keep step with what the script does every so many
        steps. No generator of the script's is used."""
        self._varied = (self._varied * 16807) % 2147483647
        return max(1, int(self._resting_steps * (0.5 + self._varied / 2147483647)))

    def _count_updates(self) -> None:
        """Let some updates of the anchor pass, and hear of the last of them, or of another optimizer's."""
        steps = min(_UNTOLD_STEPS, self._rest_until - self._known_steps)
        count, self._passed_updates = _counter(self._only_anchor, steps * self._updates_per_step, self._updates_passed)
        self._see_updates_by(count)

    def _updates_passed(self, optimizer: Any) -> None:
        if id(optimizer) != self._only_anchor:
            self._another_steps(optimizer)
            return
        self._take_count()
        if self._known_steps >= self._rest_until:
            self.wake(within_step=False)
        else:
            self._count_updates()
        self._tell_step()

    def _take_count(self) -> None:
        steps = self._passed_updates() // self._updates_per_step
        self._passed_updates = _none
        self._known_steps += steps
        self.steps_done += steps

    def wake(self, *, within_step: bool) -> None:
        """Time steps again; one that has begun by now is not timed."""
        if self.resting:
            self._take_count()
            self._see_updates_by(self._update_ends)
            self._put_hooks_back()
        self.resting = False
        self._in_a_row = self._updates = 0
        self._skips_row = within_step
        self._watch.restart()

    # -- ends whose beginning was not seen: it woke in between ----------------------------------

    def _forward_ends(self, root: Any, output: Any) -> None:
        if len(self._phases) > 1:
            super()._forward_ends(root, output)

    def _backward_ends(self) -> None:
        if len(self._phases) > 1:
            super()._backward_ends()

    def _update_ends(self, optimizer: Any) -> None:
        if len(self._phases) > 1:
            self._updates += 1
            super()._update_ends(optimizer)

    # -- the hooks that stay while it rests ----------------------------------------------------

    def _save_or_rest(self, save: Fetch) -> Any:
        return save() if self.resting else self._save(save)

    def _skipped_or_rest(self, optimizer: Any) -> None:
        if not self.resting:
            self._update_skipped(optimizer)
            return
        for _ in range(self._updates_per_step):
            self._at_updates(optimizer)

    def _replayed_or_rest(self, captured: CapturedStep) -> None:
        if self.resting:
            self.wake(within_step=True)
        self._replayed(captured)

    def _another_steps(self, optimizer: Any) -> None:
        self._take_count()
        ends_step = self._is_anchor(id(optimizer))
        self.wake(within_step=not ends_step)
        if ends_step:
            self._known_steps += 1
            self.steps_done += 1
            self._tell_step()


def _counter(
    anchor: int | None, updates: int, passed: Callable[[Any], None]
) -> tuple[Callable[[Any], None], Callable[[], int]]:
    """A hook that calls ``passed`` once so many updates of one optimizer are over, or with any other optimizer; and
    what tells how many are over.

    While the clock rests this is all that a step passes. A closure's own variable is what Python counts fastest.
    """
    left = updates

    def count(optimizer: Any) -> None:
        nonlocal left
        if id(optimizer) == anchor:
            left -= 1
            if left > 0:
                return
        passed(optimizer)

    return count, lambda: updates - left


def _none() -> int:
    return 0
