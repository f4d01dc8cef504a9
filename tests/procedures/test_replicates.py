"""The loop over replicates, called directly: analyses, budgets, failures, and what a replicate must not be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript

from hotlap.experiment.draft import StudyDraft, say_nothing
from hotlap.experiment.failures import Failure, failure_of
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.experiment.replicates import Design, anything, replicate
from hotlap.experiment.stages import begin, blank_study
from hotlap.experiment.trials import Trials
from hotlap.plan import setting
from hotlap.records import Plan, Progress, Replicate, Run, Stopped, TimedOut, TurnRequest

SLOW = Plan(settings=(setting("stuck"),))


class Stalling(FakeExecutor):
    """The how-manieth replicates time out in their last arm."""

    stalls: tuple[int, ...] = ()
    taken = 0

    def take_turns(self, request: TurnRequest) -> Replicate:
        self.taken += 1
        turns = super().take_turns(request)
        if self.taken not in self.stalls:
            return turns
        stuck = msgspec.structs.replace(turns.runs[-1], ending=TimedOut(limit_seconds=60.0))
        return msgspec.structs.replace(turns, runs=(*turns.runs[:-1], stuck))


class Lab:
    """Trials of a script of arithmetic, past their beginning."""

    def __init__(self, budget: float | None = None, stalls: tuple[int, ...] = ()) -> None:
        effects = {SLOW.settings[0]: Effect(fails="hang")}
        self.executor = Stalling(FakeScript(effects=effects))
        self.told: list[Progress] = []
        options = Options(budget_seconds=budget, rounds=8)
        self.trials = Trials(WORKLOAD, options, JournaledExecutor(self.executor, clock=self.executor.clock))
        self.draft = StudyDraft(blank_study(WORKLOAD, options, None), self.trials, None, self.told.append)
        begin(self.trials, self.draft)
        self.executor.stalls = stalls
        self.told.clear()
        self.analysed_at: list[int] = []

    def decided(self, at: int = 100) -> Callable[[Sequence[Replicate]], bool]:
        def rule(replicates: Sequence[Replicate]) -> bool:
            self.analysed_at.append(len(replicates))
            return len(replicates) >= at

        return rule


THREE = (Plan(), Plan(), Plan())


@pytest.mark.parametrize(("at", "analyses"), [(3, [3]), (5, [3, 5]), (100, [3, 5, 8])])
def test_the_rule_is_applied_at_its_analyses_alone(at: int, analyses: list[int]) -> None:
    lab = Lab()
    found = replicate(lab.trials, lab.draft, Design(arms=THREE, purpose="x"), lab.decided(at))
    assert lab.analysed_at == analyses
    assert (len(found.replicates), found.failure, found.unfinished) == (analyses[-1], None, False)
    assert [it.replicates_planned for it in lab.told] == [
        analysis for analysis, more in zip(analyses, (3, 2, 3), strict=False) for _ in range(more)
    ]
    assert lab.told[1].running is None and lab.told[2].running is not None


def test_a_budget_ends_with_the_last_complete_analysis() -> None:
    lab = Lab(budget=1000.0)
    one = lab.trials.replicates_seconds(THREE, 1, 8)
    lab.trials.options = Options(budget_seconds=lab.trials.spent_seconds + 4.5 * one, rounds=8)
    found = replicate(lab.trials, lab.draft, Design(arms=THREE, purpose="x"), lab.decided())
    assert (len(found.replicates), found.failure, found.unfinished) == (3, None, True)


def test_what_is_cut_after_an_analysis_is_not_counted() -> None:
    lab = Lab(budget=1000.0)
    cut = Failure(0, Stopped(), "The time was over.", cut=True)
    design = Design(arms=THREE, purpose="x", accept=lambda turns: cut if lab.executor.taken == 5 else None)
    found = replicate(lab.trials, lab.draft, design, lab.decided())
    assert (len(found.replicates), found.failure, found.unfinished) == (3, None, True)
    before = replicate(
        Lab().trials, lab.draft, Design(arms=THREE, purpose="x", accept=lambda turns: cut), lab.decided()
    )
    assert (before.replicates, before.failure) == ((), cut)


def test_the_caller_may_end_the_first_analysis() -> None:
    lab = Lab()
    seen: list[int] = []
    design = Design(arms=THREE, purpose="x", goes_on=lambda to_come: seen.append(to_come) or to_come > 1)
    found = replicate(lab.trials, lab.draft, design)
    assert seen == [3, 2, 1]
    assert found.replicates == () and found.failure is not None and found.failure.cut


def test_an_objection_ends_it() -> None:
    lab = Lab()
    wrong = Failure(2, Stopped(), "It is not what was asked for.")
    found = replicate(lab.trials, lab.draft, Design(arms=THREE, purpose="x", accept=lambda turns: wrong))
    assert found.failure == wrong and lab.executor.taken == 1


@pytest.mark.parametrize(("stalls", "fails"), [((2,), False), ((2, 3), True)])
def test_a_replicate_that_timed_out_is_taken_again_once(stalls: tuple[int, ...], fails: bool) -> None:
    lab = Lab(stalls=stalls)
    design = Design(arms=THREE, purpose="x", analyses=(3,), repeats_time_outs=True)
    found = replicate(lab.trials, lab.draft, design)
    assert (found.failure is not None) == fails
    assert len(found.replicates) == (0 if fails else 3)
    assert found.timed_out_again == fails


def test_one_that_hangs_is_a_failure() -> None:
    lab = Lab()
    found = replicate(lab.trials, lab.draft, Design(arms=(Plan(), Plan(), SLOW), purpose="x"))
    assert found.failure is not None and found.failure.arm == 2 and isinstance(found.failure.ending, TimedOut)


def test_progress_may_be_of_more_arms_than_are_compared() -> None:
    lab = Lab()
    quiet = StudyDraft(lab.draft.study, lab.trials, None, say_nothing)
    design = Design(arms=(*THREE, Plan()), purpose="x", analyses=(2,), accept=anything, compares=False, label="Four")
    assert len(replicate(lab.trials, quiet, design).replicates) == 2
    replicate(lab.trials, lab.draft, design)
    assert [it.text for it in lab.told] == ["Four: replicate 1 of 2", "Four: replicate 2 of 2"]
    assert all(it.running is None for it in lab.told)


@pytest.mark.parametrize(
    ("rounds", "is_of_use"),
    [((), False), (((), ()), False), (((1.0,), (1.0,)), False), (((1.0, 1.0), (1.0, 1.0)), True)],
)
def test_of_a_cut_replicate_a_first_measurement_needs_two_rounds(
    rounds: tuple[tuple[float, ...], ...], is_of_use: bool
) -> None:
    run = Run(plan=Plan(), ending=Stopped())
    turns = Replicate(runs=(run, run), rounds=rounds)
    failure = failure_of(turns)
    assert failure is not None and failure.cut
    assert failure.begun == (turns if is_of_use else None)
