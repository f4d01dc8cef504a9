"""Does a patched script do what the levers did from outside? Both take turns, and must be as fast and compute the same.

One side is the original with the patch's levers installed, the other the patched copy with no plan. Levers that are not
in the patch are on neither side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import msgspec

from hotlap.errors import HotlapError
from hotlap.experiment.book import Book, OnProgress, say_nothing
from hotlap.experiment.confirm import BASELINE, CANDIDATE, adapt_rounds, compare_sets, divergence
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.experiment.stages import begin, blank_study
from hotlap.experiment.trials import Failure, Trials
from hotlap.machine.label import machine_label
from hotlap.measure import speed
from hotlap.procedures.check.numbers import TwoScripts, without_blame
from hotlap.procedures.check.rule import look_at
from hotlap.records import (
    Assignment,
    CheckVerdict,
    Completed,
    Estimate,
    ParityComparison,
    PatchProof,
    Run,
    Sides,
    SpeedComparison,
    TurnSet,
)
from hotlap.trial.executor import Executor


def prove_patch(
    sides: Sides,
    replaced: Collection[str],
    options: Options,
    executor: Executor,
    on_progress: OnProgress = say_nothing,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> PatchProof:
    """Run both sides and say what differs. ``replaced`` are the paths of the original's files, which the patched copy
    must not have run; ``options.delta`` is the slowdown that counts.

    Raises :class:`HotlapError` when the original cannot be measured.
    """
    trials = Trials(sides.before, options, JournaledExecutor(executor, clock=clock))
    book = Book(blank_study(sides.before, options, None), trials, None, on_progress)
    begin(trials, book)
    trials.choose_rounds(1)
    proof = _Proof(sides, frozenset(replaced), trials, book).run()
    machine = machine_label(book.study.machine)
    return msgspec.structs.replace(proof, delta=options.delta, steps=options.parity_steps, machine=machine)


class _Proof:
    def __init__(self, sides: Sides, replaced: frozenset[str], trials: Trials, book: Book) -> None:
        self._sides = sides
        self._replaced = replaced
        self._trials = trials
        self._book = book
        self._sets: list[TurnSet] = []

    def run(self) -> PatchProof:
        verdict, found = self._time()
        if isinstance(found, str):
            return PatchProof(text=found, refusal=found)
        self._book.tell("parity", "Does the patched copy compute the same?")
        numbers = TwoScripts(self._trials, self._sides).prove(self._sets)
        if isinstance(numbers, Failure):
            return PatchProof(text=numbers.reason, refusal=f"The patched copy failed. {numbers.reason}", speed=found)
        numbers = without_blame(numbers)
        return PatchProof(
            text=f"{_numbers_text(numbers)} {_speed_text(found, verdict)}",
            refusal=_refusal(numbers, found, verdict),
            numbers=numbers,
            speed=found,
        )

    # -- turns --------------------------------------------------------------------------------

    def _time(self) -> tuple[CheckVerdict, SpeedComparison | str]:
        """Sets until a look decides; in place of a comparison, why the patched copy could not be timed."""
        delta = self._trials.options.delta
        verdict: CheckVerdict = "inconclusive"
        found: SpeedComparison | None = None
        for look in speed.LOOKS:
            if found is not None and not self._trials.fits((look.sets - len(self._sets)) * self._set_seconds):
                break
            problem = self._take_sets(look.sets)
            if problem:
                return "failed", problem
            verdict, _, _, found = look_at(self._sets, None, delta)
            if verdict != "inconclusive":
                break
            adapt_rounds(self._trials, self._sets)
        assert found is not None
        return verdict, found

    @property
    def _set_seconds(self) -> float:
        plan = self._sides.before_plan
        return self._trials.costs.of_set([plan, plan, plan], self._trials.rounds)

    def _take_sets(self, upto: int) -> str:
        while len(self._sets) < upto:
            text = f"the patched copy against the levers: set {len(self._sets) + 1} of {upto}"
            running = self._running()
            self._book.tell("trial", text, sets_done=len(self._sets), sets_planned=upto, running=running)
            turns = self._trials.take_set(self._arms(), rounds=self._trials.rounds, purpose="patch")
            if isinstance(turns, Failure):
                return self._failed(turns)
            diverged = divergence(turns.runs[BASELINE], turns.runs[CANDIDATE])
            if diverged is not None:
                return f"The patched copy diverged. {diverged.reason}"
            self._check_copy(turns.runs[CANDIDATE])
            self._sets.append(turns)
        return ""

    def _running(self) -> Estimate | None:
        if len(self._sets) < 2:
            return None
        confidence = speed.HEADLINE_CONFIDENCE
        return compare_sets(self._sets, delta=self._trials.options.delta, confidence=confidence).speedup

    def _arms(self) -> Sequence[Assignment]:
        sides = self._sides
        before = self._trials.assignment(sides.before_plan)
        after = msgspec.structs.replace(self._trials.assignment(sides.now_plan), workload=sides.now)
        return [before, before, after]

    def _failed(self, failure: Failure) -> str:
        """Why the patched copy failed. Raises :class:`HotlapError` when the original did."""
        if failure.arm == CANDIDATE and not isinstance(failure.ending, Completed):
            return f"The patched copy does not run through: {failure.reason}"
        if isinstance(failure.ending, Completed):
            raise HotlapError(
                f"The patch cannot be proved. {failure.reason}",
                remedy="Let the script train longer, or leave the proof out with --no-proof.",
            )
        raise HotlapError(
            f"With the plan's levers the script failed, so the patch cannot be compared. {failure.reason}",
            remedy="Run the search again: the machine or the script has changed since.",
        )

    def _check_copy(self, run: Run) -> None:
        """Raises :class:`HotlapError` when the copy took the original's files: it would be compared with itself."""
        taken = sorted({it.file for it in run.facts.sites} & self._replaced)
        if not taken:
            return
        raise HotlapError(
            f"The patched copy still ran {taken[0]} as it was, since that is installed in place.",
            remedy="Put its folder on the path (PYTHONPATH), or leave the proof out with --no-proof.",
        )


# -- words ----------------------------------------------------------------------------------------


def _refusal(numbers: ParityComparison, found: SpeedComparison, verdict: CheckVerdict) -> str:
    if numbers.verdict == "lost":
        return f"The patched copy does not compute what the levers do. {numbers.text}"
    if verdict == "failed":
        return f"The patched copy is slower than the levers: {_interval(found)}."
    return ""


def _numbers_text(numbers: ParityComparison) -> str:
    return f"Numbers: {numbers.text}"


def _speed_text(found: SpeedComparison, verdict: CheckVerdict) -> str:
    words = {
        "passed": "as fast as the levers",
        "failed": "slower than the levers",
        "inconclusive": "not told apart from the levers",
    }
    return f"Speed: {words[verdict]}, {_interval(found)}."


def _interval(found: SpeedComparison) -> str:
    it = found.speedup
    confidence = f"{100 * found.confidence:g} % interval {it.low:.3f} to {it.high:.3f}"
    return f"{it.value:.3f}x ({confidence}, {found.sets} sets of {found.rounds} rounds)"
