"""The regret benchmark on arithmetic instead of processes: it finds the best plan, and names what was left out."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest
from bench.regret import report
from bench.regret.__main__ import parse, terms_of
from bench.regret.contest import Contest, FinalFailed, Terms
from bench.regret.grid import all_plans, choices_of, make_grid, neighbours, same
from hypothesis import given
from hypothesis import strategies as st

from hotlap.plan import EMPTY, setting
from hotlap.records import Comparison as SpeedAndSameness
from hotlap.records import (
    Crashed,
    Estimate,
    LaunchRequest,
    Machine,
    Outcome,
    PhaseAccount,
    Plan,
    QualityLost,
    Replicate,
    Run,
    ScriptFacts,
    Setting,
    SpeedComparison,
    Stopped,
    Study,
    TurnRequest,
    Workload,
)
from hotlap.trial.executor import OneSlot

WORKLOAD = Workload(kind="script", target="train.py", directory="/", python="python")
LOADER, MORE = setting("loader", num_workers=1), setting("loader", num_workers=2)
HALF, FUSED = setting("mixed-precision", dtype="bfloat16"), setting("fused-optimizer", implementation="fused")
CHOICES = {"loader": (LOADER, MORE), "mixed-precision": (HALF,), "fused-optimizer": (FUSED,)}
FACTORS = {LOADER: 0.8, MORE: 0.7, HALF: 0.6, FUSED: 1.02}


class Arithmetic(OneSlot):
    """An executor in which every setting multiplies the time; a plan with ``broken`` crashes."""

    def __init__(
        self, factors: Mapping[Setting, float], *, broken: Setting | None = None, noise: float = 0.005
    ) -> None:
        self._factors = factors
        self._broken = broken
        self._noise = noise
        self._random = random.Random(0)
        self.replicates = 0
        self.block_turns: set[int] = set()

    def machine(self) -> Machine:
        return Machine()

    def launch(self, request: LaunchRequest) -> Run:
        raise NotImplementedError

    def take_turns(self, request: TurnRequest) -> Replicate:
        self.replicates += 1
        self.block_turns.add(request.block_turns)
        plans = [arm.plan for arm in request.arms]
        if any(self._broken in plan.settings for plan in plans):
            runs = tuple(Run(ending=Crashed(exit_code=1) if self._broken in it.settings else Stopped()) for it in plans)
            return Replicate(runs=runs, rounds=((),) * len(plans))
        return Replicate(
            runs=tuple(Run(plan=it) for it in plans),
            rounds=tuple(self._row(it, request.rounds) for it in plans),
        )

    def _row(self, plan: Plan, rounds: int) -> tuple[float, ...]:
        seconds = math.prod(self._factors[it] for it in plan.settings)
        launch = self._random.gauss(0, self._noise)
        return tuple(seconds * math.exp(launch + self._random.gauss(0, self._noise)) for _ in range(rounds))


def contest(executor: Arithmetic, found: Plan) -> Contest:
    return Contest(executor, WORKLOAD, found, Terms(heat_rounds=3, rounds=5), progress=lambda text: None)


def test_all_replicates_of_a_contest_take_blocks_in_as_many_turns() -> None:
    executor, found = Arithmetic(FACTORS), Plan(settings=(HALF,))
    terms = Terms(heat_rounds=3, rounds=5, block_turns=4)
    Contest(executor, WORKLOAD, found, terms, progress=lambda text: None).hold([Plan(settings=(MORE,))])
    assert executor.block_turns == {4}


# -- the grid --------------------------------------------------------------------------------------


def test_the_whole_product_is_measured_where_it_fits() -> None:
    found = Plan(settings=(HALF, MORE))
    grid = make_grid(CHOICES, found, limit=100, seed=0)
    assert grid.size == 12
    assert len(grid.plans) == 11
    assert not any(same(it, found) for it in grid.plans)
    assert "All 12 plans" in grid.statement


@given(limit=st.integers(1, 12), seed=st.integers(0, 3), index=st.integers(0, 11))
def test_a_capped_grid_keeps_what_is_nearest_to_the_found_plan(limit: int, seed: int, index: int) -> None:
    found = list(all_plans(CHOICES))[index]
    grid = make_grid(CHOICES, found, limit=limit, seed=seed)
    assert len(grid.plans) == min(limit, 11)
    assert len({frozenset(it.settings) for it in grid.plans}) == len(grid.plans)
    assert not any(same(it, found) for it in grid.plans)
    neighbours = [it for it in all_plans(CHOICES) if len(set(it.settings) ^ set(found.settings)) == 1]
    if limit >= 4:  # one neighbour for each other setting
        assert all(it in grid.plans for it in neighbours)
    assert f"of {grid.size}" in grid.statement or "All" in grid.statement


def study(*outcomes: Outcome) -> Study:
    facts = ScriptFacts(threads=2)
    return Study(
        workload=WORKLOAD,
        machine=Machine(cores=2, physical_cores=2, native_dtypes=("bfloat16",)),
        baseline=Run(facts=facts),
        account_before=PhaseAccount(wall=0.1, phases=(("forward", 0.1),)),
        outcomes=outcomes,
    )


def test_what_broke_the_numbers_is_no_answer() -> None:
    from hotlap.levers.api import all_levers

    threads = setting("cpu-threads", threads=1)
    assert threads in choices_of(study(), all_levers())["cpu-threads"]
    nothing = Estimate(value=1.0, low=1.0, high=1.0)
    speed = SpeedComparison(
        speedup=nothing,
        verdict="faster",
        replicates=3,
        rounds=3,
        confidence=0.95,
        noise_floor=0.0,
        smallest_detectable=0.0,
    )
    lost = QualityLost(comparison=SpeedAndSameness(baseline=EMPTY, candidate=EMPTY, speed=speed))
    refused = Outcome(lever="cpu-threads", setting=threads, verdict=lost)
    assert "cpu-threads" not in choices_of(study(refused), all_levers())


def test_a_study_without_a_baseline_has_no_grid() -> None:
    with pytest.raises(ValueError, match="no baseline"):
        choices_of(Study(workload=WORKLOAD), {})


# -- the contest -----------------------------------------------------------------------------------


def test_regret_is_found_where_there_is_some() -> None:
    found = Plan(settings=(LOADER, HALF))
    result = contest(Arithmetic(FACTORS), found).hold(make_grid(CHOICES, found, limit=100, seed=0).plans)
    assert same(result.best, Plan(settings=(MORE, HALF)))
    (final,) = result.found
    assert final.ratio.speedup.low < 0.7 / 0.8 < final.ratio.speedup.high
    assert report.verdict(final) == "missed"
    assert final.speedup.speedup.value == pytest.approx(1 / 0.48, rel=0.03)
    assert result.best_speedup.speedup.value == pytest.approx(1 / 0.42, rel=0.03)


def test_the_plans_of_all_budgets_meet_the_best_one_in_the_final() -> None:
    found, early = Plan(settings=(MORE, HALF)), Plan(settings=(LOADER,))
    held = Contest(Arithmetic(FACTORS), WORKLOAD, found, Terms(), lambda text: None, others=(EMPTY, early, found))
    result = held.hold(make_grid(CHOICES, found, limit=100, seed=0).plans)
    assert [it.plan for it in result.found] == [found, EMPTY, early]
    assert report.verdict(result.of(found)) == "kept" and report.verdict(result.of(EMPTY)) == "missed"
    assert result.of(early).ratio.speedup.value == pytest.approx(0.42 * 1.02 / 0.8, rel=0.05)


def test_a_grid_that_is_not_measured_whole_is_climbed() -> None:
    found = Plan(settings=(FUSED, LOADER))
    terms = Terms(climbs=3)
    near = neighbours(CHOICES, found)
    held = Contest(
        Arithmetic(FACTORS), WORKLOAD, found, terms, lambda text: None, next_to=lambda it: neighbours(CHOICES, it)
    )
    result = held.hold(near[:1])
    assert same(result.best, Plan(settings=(MORE, HALF)))
    plans = [frozenset(plan.settings) for plan, _ in result.heats]
    assert len(set(plans)) == len(plans) and frozenset(found.settings) not in plans


def test_a_large_grid_is_not_listed() -> None:
    choices = {
        f"lever-{number}": tuple(setting(f"lever-{number}", value=it) for it in range(9)) for number in range(20)
    }
    grid = make_grid(choices, EMPTY, limit=200, seed=0)
    assert grid.size == 10**20 and len(grid.plans) == 200
    assert len({frozenset(it.settings) for it in grid.plans}) == 200


def test_the_best_plan_has_none() -> None:
    found = Plan(settings=(HALF, MORE))
    result = contest(Arithmetic(FACTORS), found).hold(make_grid(CHOICES, found, limit=100, seed=0).plans)
    (final,) = result.found
    assert final.ratio.speedup.value > 1.0
    assert report.verdict(final) == "kept"
    assert [speed for _, speed in result.heats] == sorted((speed for _, speed in result.heats), reverse=True)


def test_a_plan_that_fails_damages_only_its_replicate() -> None:
    found = Plan(settings=(HALF,))
    executor = Arithmetic(FACTORS, broken=FUSED)
    grid = make_grid(CHOICES, found, limit=100, seed=0)
    result = contest(executor, found).hold(grid.plans)
    assert {frozenset(it.settings) for it in result.failed} == {
        frozenset(it.settings) for it in grid.plans if FUSED in it.settings
    }
    assert len(result.heats) + len(result.failed) == len(grid.plans)
    assert same(result.best, Plan(settings=(MORE, HALF)))


def test_a_final_that_fails_says_how_its_arms_ended() -> None:
    found = Plan(settings=(FUSED,))
    with pytest.raises((FinalFailed, ValueError), match=r"Crashed|no other plan"):
        contest(Arithmetic(FACTORS, broken=FUSED), found).hold([EMPTY])


def test_the_report_names_the_plans_and_what_was_not_measured() -> None:
    found = Plan(settings=(HALF, LOADER))
    grid = make_grid(CHOICES, found, limit=6, seed=0)
    result = contest(Arithmetic(FACTORS), found).hold(grid.plans)
    row = report.Row(
        name="bert",
        arguments=("--epochs", "20"),
        studies=(Study(workload=WORKLOAD, plan=found, budget_seconds=120.0),),
        choices=CHOICES,
        grid=grid,
        result=result,
    )
    text = report.markdown([row], Terms())
    assert "mixed-precision (dtype bfloat16), loader (num_workers 1)" in text
    assert "7 of 12 plans were measured" in text
    assert "| bert | 2 min |" in text
    (search,) = report.data([row])[0]["searches"]
    assert search["verdict"] == "missed" and search["budget_seconds"] == 120.0


def test_the_best_plan_in_another_order_is_named_as_the_same() -> None:
    """A shorter search may find what the contest of the longest one ends with."""
    longest, shorter = Plan(settings=(HALF,)), Plan(settings=(HALF, MORE))
    held = Contest(Arithmetic(FACTORS), WORKLOAD, longest, Terms(), lambda text: None, others=(shorter,))
    result = held.hold([Plan(settings=(MORE, HALF))])
    studies = tuple(
        Study(workload=WORKLOAD, plan=plan, budget_seconds=seconds)
        for plan, seconds in ((shorter, 240.0), (longest, 480.0))
    )
    row = report.Row("bert", (), studies, CHOICES, make_grid(CHOICES, longest, limit=6, seed=0), result)
    of_shorter, of_longest = (line for line in report.markdown([row], Terms()).splitlines() if "| bert |" in line)
    assert "| the same levers |" in of_shorter
    assert "| loader (num_workers 2), mixed-precision (dtype bfloat16) |" in of_longest


def test_flags_reach_the_terms() -> None:
    options = parse(["--out", "x", "--final-replicates", "3", "--heat-rounds", "2", "--examples", "gpt"])
    assert terms_of(options).final_replicates == 3
    assert terms_of(options).heat_rounds == 2
    assert options.examples == ["gpt"]
    with pytest.raises(SystemExit):
        parse(["--out", "x", "--final-replicates", "1"])


def test_a_cut_leaves_a_row_of_what_is_finished() -> None:
    study = Study(workload=WORKLOAD, plan=Plan(settings=(HALF,)), budget_seconds=120.0, spent_seconds=100.0)
    row = report.unfinished("bert", (), [study], "the searches of 8 min, and the contest")
    text = report.markdown([row], Terms())
    assert "| bert | 2 min | mixed-precision (dtype bfloat16) |" in text
    assert "the searches of 8 min, and the contest are left" in text
    assert report.data([row])[0]["left"]
    nothing = report.markdown([report.unfinished("gpt", (), [], "all")], Terms())
    assert "| gpt |" in nothing and "all are left" in nothing
