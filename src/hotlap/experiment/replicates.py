"""The one loop over replicates: take them until an analysis decides, the last is done, or the budget is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hotlap.experiment.comparing import BASELINE, CANDIDATE, REPEAT, compare_replicates, divergence, largest_peak_bytes
from hotlap.experiment.costs import Shape
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure
from hotlap.experiment.quiet import quietly, runs_of_replicate
from hotlap.experiment.trials import Arm, Trials
from hotlap.measure import speed
from hotlap.records import Estimate, Measurement, Plan, Replicate, Stage, Stopped, TimedOut
from hotlap.wording import is_worth_showing, replicates_words

Rule: TypeAlias = Callable[[Sequence[Replicate]], bool]
"""Whether the replicates so far decide. Its rate of false positives depends on how often it is called."""

ANALYSES = tuple(analysis.replicates for analysis in speed.ANALYSES)


def same_numbers(turns: Replicate) -> Failure | None:
    """A failure if the candidate's loss is no longer finite while the baseline's is."""
    return divergence(turns.runs[BASELINE], turns.runs[CANDIDATE])


def anything(turns: Replicate) -> Failure | None:
    """No objection."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """The arms, the numbers of replicates at which the rule is applied, and the label of progress.

    The replicates of the first analysis are taken at any cost: the caller has made sure that they fit, or stops them by
    ``goes_on``, which is called before each one with the number that remains until the next analysis. Later ones are
    taken if all their replicates fit into the budget.

    ``accept`` returns what is wrong with a replicate. With ``measured`` a replicate that other processes disturbed is
    repeated as long as the remaining ones still fit; with ``repeats_time_outs`` so is one that timed out, once. With
    ``adapts_rounds`` each analysis corrects the number of rounds (otherwise ``rounds``). With ``compares`` progress
    shows the current interval of the third arm compared with the first. ``shape`` says how blocks are cut (None: as
    usual, and shorter for a script that ends early).
    """

    arms: Sequence[Plan | Arm]
    purpose: str
    analyses: Sequence[int] = ANALYSES
    rounds: int | None = None
    shape: Shape | None = None
    accept: Callable[[Replicate], Failure | None] = same_numbers
    goes_on: Callable[[int], bool] = lambda to_come: True
    measured: Measurement | None = None
    repeats_time_outs: bool = False
    adapts_rounds: bool = False
    compares: bool = True
    stage: Stage = "trial"
    label: str = ""
    lever: str = ""


@dataclass(frozen=True, slots=True)
class Replication:
    """The replicates of all completed analyses.

    ``unfinished``: the budget ended the trial early. ``failure``: why there are no replicates. ``timed_out_again``: a
    repetition timed out as well.
    """

    replicates: tuple[Replicate, ...]
    failure: Failure | None = None
    unfinished: bool = False
    timed_out_again: bool = False


def replicate(
    trials: Trials, draft: StudyDraft, design: Design, decided: Rule = lambda replicates: False
) -> Replication:
    """Take replicates up to each analysis of the design until one decides, or a replicate fails."""
    return _Loop(trials, draft, design).run(decided)


class _Loop:
    def __init__(self, trials: Trials, draft: StudyDraft, design: Design) -> None:
        self._trials = trials
        self._draft = draft
        self._design = design
        self._replicates: list[Replicate] = []
        self._timed_out_again = False

    def run(self, decided: Rule) -> Replication:
        analysed = 0
        for analysis in self._design.analyses:
            if analysed and not self._trials.fits(self._cost(analysis - analysed)):
                return self._unfinished(analysed)
            failure = self._take_up_to(analysis)
            if failure is not None and failure.cut and analysed:
                return self._unfinished(analysed)
            if failure is not None:
                return Replication((), failure, timed_out_again=self._timed_out_again)
            if decided(self._replicates):
                break
            analysed = analysis
            if self._design.adapts_rounds:
                adapt_rounds(self._trials, self._replicates)
        return Replication(tuple(self._replicates))

    def _unfinished(self, analysed: int) -> Replication:
        return Replication(tuple(self._replicates[:analysed]), unfinished=True)

    def _take_up_to(self, analysis: int) -> Failure | None:
        """Add replicates up to this number; a Failure if one has no numbers."""
        while (to_come := analysis - len(self._replicates)) > 0:
            if not self._design.goes_on(to_come):
                return Failure(BASELINE, Stopped(), "The budget ended before the first analysis.", cut=True)
            count = self._at_once(to_come)
            self._announce(analysis, count)
            for turns in self._take(count, to_come):
                if isinstance(turns, Failure):
                    return turns
                for lost in turns.lost_nodes:
                    self._draft.warn(f"The node {lost} was lost; its replicate was taken again on {turns.node}.")
                objection = self._design.accept(turns)
                if objection is not None:
                    return objection
                self._replicates.append(turns)
        return None

    @property
    def _may_repeat(self) -> bool:
        """Whether a replicate may have to be repeated, and so is taken by itself."""
        return self._design.measured is not None or self._design.repeats_time_outs

    def _at_once(self, to_come: int) -> int:
        """As many as the slots take at once."""
        trials = self._trials
        if self._may_repeat:
            return 1
        return min(to_come, trials.executor.slots * trials.replicates_at_once(len(self._design.arms)))

    def _take(self, count: int, to_come: int) -> Sequence[Replicate | Failure]:
        trials, design = self._trials, self._design
        if not self._may_repeat:
            return trials.take_replicates(
                design.arms,
                count=count,
                rounds=self._rounds,
                purpose=design.purpose,
                shape=design.shape,
                compiles_all=not self._replicates,
            )
        turns = self._undisturbed(to_come)
        if timed_out(turns) and design.repeats_time_outs and trials.fits(self._cost(to_come)):
            turns, self._timed_out_again = self._undisturbed(to_come), True  # the machine may be quiet by now
        return [turns]

    def _undisturbed(self, to_come: int) -> Replicate | Failure:
        trials, design = self._trials, self._design

        def repeat(patience_seconds: float) -> Replicate | Failure:
            return trials.take_replicate(
                design.arms,
                rounds=self._rounds,
                purpose=design.purpose,
                shape=design.shape,
                patience_seconds=patience_seconds,
                compiles_all=not self._replicates,
            )

        if design.measured is None:
            return repeat(0.0)
        most_seconds = max(0.0, trials.left_seconds - self._cost(to_come - 1))
        turns, _ = quietly(
            *(trials, self._draft, design.measured, repeat, runs_of_replicate),
            stage=design.stage,
            most_seconds=most_seconds,
        )
        return turns

    @property
    def _rounds(self) -> int:
        return self._design.rounds or self._trials.rounds

    def _cost(self, count: int) -> float:
        first = not self._replicates
        return self._trials.replicates_seconds(self._design.arms, count, self._rounds, compiles_all=first)

    def _announce(self, analysis: int, count: int) -> None:
        design, replicates = self._design, self._replicates
        number = replicates_words(len(replicates), count, analysis)
        more: dict[str, Any] = {}
        if design.compares:
            more = {
                "running": self._interval_so_far(),
                "peak_bytes": largest_peak_bytes(replicates, CANDIDATE),
                "baseline_peak_bytes": largest_peak_bytes(replicates, BASELINE),
            }
        text = f"{design.label}: {number}" if design.label else number
        self._draft.report(
            design.stage,
            text,
            lever=design.lever,
            replicates_done=len(replicates),
            replicates_planned=analysis,
            replicates_at_once=count,
            **more,
        )

    def _interval_so_far(self) -> Estimate | None:
        """The interval for progress, on which no decision depends; None while it is too wide to be meaningful."""
        if len(self._replicates) < 2:
            return None
        delta = self._trials.options.delta
        found = compare_replicates(self._replicates, delta=delta, confidence=speed.HEADLINE_CONFIDENCE).speedup
        return found if is_worth_showing(found) else None


def adapt_rounds(trials: Trials, replicates: Sequence[Replicate]) -> None:
    """More rounds if rounds are noisy and launches expensive, fewer if launches differ anyway."""
    first, second = ([it.rounds[arm] for it in replicates] for arm in (BASELINE, REPEAT))
    if len(replicates) < 2 or min(len(it) for it in first) < 2:
        return
    costs = trials.costs
    rounds = speed.round_count(
        launch_seconds=costs.overhead_seconds,
        round_seconds=costs.shape.round_seconds,
        parts=speed.variance_parts(first, second),
    )
    trials.set_rounds(rounds)


def timed_out(taken: object) -> bool:
    """Whether it timed out, which is not evidence about the script on a busy machine."""
    return isinstance(taken, Failure) and isinstance(taken.ending, TimedOut)
