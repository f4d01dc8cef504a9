"""Find the origin of the first NaN or infinity: one run that only watches, then the same steps with all operations
checked.

The first run costs little more than the script itself and ends at the first loss, gradient or weight that is not
finite. The second has the same seed and checks operations from shortly before that step on. If the number is even
older, a third run checks from the script's first line on, if the time limit allows.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TypeAlias

import msgspec

from hotlap.errors import ScriptError
from hotlap.experiment.denied import failure_of
from hotlap.experiment.failures import ran_through, steps_done
from hotlap.experiment.observe import after_steps, command_line, limit_to_raise, remedy_of
from hotlap.experiment.plan_ahead import Forecast, Launches, PlanAhead
from hotlap.experiment.repeat import repeated
from hotlap.records import (
    Assignment,
    BadNumber,
    Completed,
    Crashed,
    Isolation,
    LaunchRequest,
    NetworkMode,
    NumbersHunt,
    OutOfMemory,
    Record,
    Run,
    StepSource,
    TimedOut,
    WatchNumbers,
    Workload,
)
from hotlap.redact import redacted, redacted_record, secrets_of
from hotlap.trial.executor import Executor
from hotlap.wording import about, ending_text

Report: TypeAlias = Callable[[str], object]

STEPS_BEFORE = 2
"""How many steps before the find are checked: its cause may be in an earlier step."""

STEPS_AFTER = 3
MOST_REPETITIONS = 3
_NO_LIMIT_STEPS = 10**9
_CHECKING_FACTOR = 10.0
"""How much longer a checked step is assumed to be until one was measured."""

_PATIENCE = 30.0
_SPEAKS_OF_IT = re.compile(r"\b(?:nans?|inf(?:inity|inite)?|non-?finite|not finite)\b", re.IGNORECASE)


class HuntOptions(Record, frozen=True, kw_only=True):
    """How far to search: ``steps`` (None: until the script ends) and ``seconds``, whichever ends first."""

    steps: int | None = None
    seconds: float = 600.0
    seed: int = 0
    startup_limit_seconds: float = 600.0
    block_limit_seconds: float = 300.0
    show_output: bool = False
    network: NetworkMode = "open"
    unprotected: bool = False

    @property
    def isolation(self) -> Isolation:
        """What these options require of the executor."""
        return Isolation(network=self.network, unprotected=self.unprotected)


def hunt(
    workload: Workload,
    options: HuntOptions,
    executor: Executor,
    report: Report = lambda sentence: None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> NumbersHunt:
    """Find the first number that is not finite, and the operation that made it.

    ``report`` is called with a sentence at each stage. Raises :class:`ScriptError` if the script fails for another
    reason, or never trains.
    """
    began = clock()
    hunter = _Hunter(workload, options, executor, report, clock)
    found = hunter.hunt()
    return msgspec.structs.replace(found, wall_seconds=clock() - began)


class _Hunter:
    def __init__(
        self,
        workload: Workload,
        options: HuntOptions,
        executor: Executor,
        report: Report,
        clock: Callable[[], float],
    ) -> None:
        self._workload = workload
        self._options = options
        self._executor = executor
        self._report = report
        self._step_source: StepSource = "auto"
        self._first_seconds = 0.0
        self._clock = clock
        self._began = clock()
        self._launches = 0
        self._first_steps: Sequence[float] = ()
        self._plan = PlanAhead()

    def hunt(self) -> NumbersHunt:
        self._plan_ahead(Launches(1, None, f"to watch {self._watched()}, and more only if a number is not finite"))
        found = self._find()
        came_to = self._plan.outcome(self._launches, self._spent_seconds)
        if came_to:
            self._report(came_to)
        return found

    def _watched(self) -> str:
        """How much of the script is watched."""
        minutes = about(self._options.seconds)
        if self._options.steps is not None:
            return f"{self._options.steps} steps, for at most {minutes}"
        return f"the script to its end, for at most {minutes}"

    def _plan_ahead(self, part: Launches) -> None:
        said = self._plan.revise(
            Forecast.of(part), launches=self._launches, spent_seconds=self._spent_seconds, budget_seconds=None
        )
        if said:
            self._report(said)

    @property
    def _spent_seconds(self) -> float:
        return self._clock() - self._began

    def _find(self) -> NumbersHunt:
        first = self._observe()
        self._first_seconds = first.wall_seconds
        self._first_steps = first.steps.wall_seconds
        done = len(first.steps.wall_seconds)
        found = NumbersHunt(
            workload=redacted(self._workload),
            seed=self._options.seed,
            finite_steps=done,
            losses_read=sum(it is not None for it in first.steps.loss),
            ending=first.ending,
            noticed=first.bad_number,
            compiled=first.compile.graphs > 0 or any(it.compiled for it in first.facts.models),
        )
        if first.bad_number is not None:
            self._report(f"step {first.bad_number.step + 1}: {_noticed(first.bad_number)}")
            return self._trace(found, first.bad_number)
        if not ran_through(first):
            return self._explain_failure(found, first)
        if done == 0:
            raise ScriptError(
                "The script ended and no training step was seen: no backward, no optimizer step.",
                where=command_line(self._workload),
                remedy="Give hotlap the script, and the arguments, that train.",
            )
        return found

    # -- the first run -------------------------------------------------------------------------

    def _observe(self) -> Run:
        """Run the unmodified script.

        One that calls backward but no optimizer of torch runs once more, with its steps counted by calls of backward.
        """
        self._report("watching loss, gradients and weights")
        run = self._first_run()
        uncounted = run.bad_number is None and not run.steps.wall_seconds and run.facts.backwards_per_step > 0
        if uncounted and ran_through(run):
            self._step_source = "backward"
            run = self._first_run()
        return run

    def _first_run(self) -> Run:
        return self._launch(None, self._options.steps or _NO_LIMIT_STEPS, self._options.seconds)

    # -- the runs that check -------------------------------------------------------------------

    def _trace(self, found: NumbersHunt, noticed: BadNumber) -> NumbersHunt:
        """Repeat the steps with every operation checked; from earlier on if the number is older."""
        start: int | None = max(0, noticed.step - STEPS_BEFORE)
        for _ in range(MOST_REPETITIONS):
            if start is None:
                break
            self._plan_ahead(self._checked(start, noticed.step + 1 + STEPS_AFTER))
            self._report(f"the same steps again, every operation checked {_from(start)}")
            run = self._launch(start, noticed.step + 1 + STEPS_AFTER, self._patience)
            bad = run.bad_number
            if bad is not None and bad.noticed_in == "script":
                bad = None  # which the first run did not examine
            if bad is not None or found.repeated is None:
                found = msgspec.structs.replace(
                    found,
                    repeated=bad,
                    repeated_steps=len(run.steps.wall_seconds),
                    repeated_ending=run.ending,
                    checked_from=start,
                )
            start = self._earlier_start(run, bad, start)
        return found

    def _earlier_start(self, run: Run, bad: BadNumber | None, start: int) -> int | None:
        """From where to check once more, or None if that cannot improve the answer."""
        if bad is None or start == 0:
            return None
        if bad.step < start:  # the runs differ
            return max(0, bad.step - STEPS_BEFORE)
        return (
            0 if _may_be_older(bad) and bad.step * _checked_step_seconds(run, start) <= self._options.seconds else None
        )

    def _checked(self, start: int, steps: int) -> Launches:
        """A launch like the first one, in which steps from ``start`` on take longer."""
        step_seconds = fmean(self._first_steps) if self._first_steps else 0.0
        longer = (_CHECKING_FACTOR - 1) * step_seconds * max(0, steps - start)
        return Launches(1, self._first_seconds + longer, f"with every operation checked {_from(start)}")

    @property
    def _patience(self) -> float:
        return max(self._options.seconds, _PATIENCE * self._first_seconds)

    # -- a script that fails -------------------------------------------------------------------

    def _explain_failure(self, found: NumbersHunt, first: Run) -> NumbersHunt:
        """Handle a script that failed, perhaps because it or torch detected NaN."""
        ending = first.ending
        crashed = isinstance(ending, Crashed) and not ending.denied_path
        output = f"{ending.error} {ending.output_tail}" if isinstance(ending, Crashed) else ""
        done = steps_done(first)
        if crashed and (done > 0 or _SPEAKS_OF_IT.search(output)):
            start = max(0, done - STEPS_BEFORE)
            self._plan_ahead(self._checked(start, done + 1 + STEPS_AFTER))
            self._report(f"the script failed; the same steps again, every operation checked {_from(start)}")
            run = self._launch(start, done + 1 + STEPS_AFTER, self._patience)
            if run.bad_number is not None:
                return msgspec.structs.replace(
                    found,
                    finite_steps=done,
                    noticed=run.bad_number,
                    repeated=run.bad_number,
                    repeated_steps=len(run.steps.wall_seconds),
                    repeated_ending=run.ending,
                    checked_from=start,
                )
        raise self._failure(first, done)

    def _failure(self, run: Run, done: int) -> ScriptError:
        when = after_steps(done)
        command = command_line(self._workload)
        match run.ending:
            case Crashed(exit_code=code) as crash:
                what = failure_of(crash, when)
                remedy = remedy_of(crash) or "Make it run without hotlap first."
                return ScriptError(what, where=command, remedy=remedy, exit_code=code or 1)
            case Completed(exit_code=code):
                what = f"The script ended with exit code {code}{when}."
                return ScriptError(what, where=command, remedy="Make it run without hotlap first.", exit_code=code)
            case OutOfMemory(error=error):
                what = f"The script ran out of memory{when}. {error}".strip()
                return ScriptError(what, where=command, remedy="Make its batch smaller first.")
            case TimedOut() as ending:
                what = f"The script hung{when}: {ending_text(ending)}"
                return ScriptError(what, where=command, remedy=limit_to_raise(ending))
        return ScriptError(f"{ending_text(run.ending)}", where=command, remedy="Make it run without hotlap first.")

    # -- launches ------------------------------------------------------------------------------

    def _launch(self, check_from: int | None, steps: int, seconds: float) -> Run:
        options = self._options
        assignment = Assignment(
            workload=self._workload,
            seed=options.seed,
            step_source=self._step_source,
            instruments=(WatchNumbers(check_from=check_from),),
            startup_limit_seconds=options.startup_limit_seconds,
            block_limit_seconds=options.block_limit_seconds,
            step_limit_seconds=options.block_limit_seconds * (1.0 if check_from is None else _CHECKING_FACTOR),
            show_output=options.show_output,
        )
        request = LaunchRequest(assignment=assignment, steps=steps, seconds=seconds)
        self._launches += 1
        run = repeated(
            lambda: self._executor.submit(request, self._executor.slots()[0]).result(),
            lambda run: (run,),
            lambda: self._report("the script was killed from outside (SIGKILL); running it again"),
        )
        return redacted_record(run, secrets_of(self._workload, os.environ))


def _may_be_older(bad: BadNumber) -> bool:
    """Whether the number may be older than the check, so that a longer check can find its origin.

    A number from NumPy, Python or a loader's worker cannot be traced further.
    """
    if bad.origin is None or bad.origin.source in ("state", "entered"):
        return True
    return bad.origin.source == "batch" and bad.origin.operation not in ("", "tensor")


def _checked_step_seconds(run: Run, start: int) -> float:
    checked = run.steps.wall_seconds[start:]
    if checked:
        return fmean(checked)
    return _CHECKING_FACTOR * fmean(run.steps.wall_seconds) if run.steps.wall_seconds else math.inf


def _noticed(bad: BadNumber) -> str:
    number = "NaN" if bad.nan else "infinite"
    return {"loss": f"the loss is {number}", "gradients": "a gradient is not finite"}.get(
        bad.noticed_in, "a weight is not finite"
    )


def _from(start: int) -> str:
    return f"from step {start + 1} on" if start else "from the first line on"
