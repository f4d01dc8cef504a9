"""Regret of simulated searches: the best plan is known, and what a search leaves behind is counted."""

from __future__ import annotations

import copy
from pathlib import Path

import msgspec
import pytest
from bench.regret import simulated
from bench.regret.scripts import CASES, COMPILE, FUSED, HALF, HUGE_PAGES, KEPT_MEMORY

from hotlap.levers.api import validate
from hotlap.records import Assignment, Plan, TurnRequest


@pytest.mark.parametrize("name", CASES)
def test_a_script_has_real_levers_and_a_best_plan(name: str) -> None:
    case = CASES[name]
    for it in case.script.effects:
        validate(it)
    assert {it.lever for it in case.script.effects} == set(case.levers())
    assert case.script.step_seconds(case.best()) < case.script.step_seconds(Plan())


def test_effects_depend_on_one_another() -> None:
    lstm = CASES["lstm"].script
    alone, kept = lstm.speedup(Plan(settings=(HALF,))), lstm.speedup(Plan(settings=(KEPT_MEMORY,)))
    both = lstm.speedup(Plan(settings=(HALF, KEPT_MEMORY)))
    assert both > 1.2 * alone * kept
    assert {HALF, FUSED, KEPT_MEMORY, HUGE_PAGES} <= set(CASES["lstm"].best().settings)


def test_a_search_is_the_same_whenever_it_is_run() -> None:
    assert simulated.searched("lstm", "shared", 4.0, 1) == simulated.searched("lstm", "shared", 4.0, 1)


def test_a_process_that_switches_keeps_the_memory_that_it_freed() -> None:
    """So what answers the costliest finding is found, with what it needs besides, in four minutes."""
    plans = [simulated.searched("lstm", "shared", 4.0, seed)[0] for seed in range(6)]
    assert sum({HALF, KEPT_MEMORY} <= set(it.settings) for it in plans) >= 4, plans


@pytest.mark.parametrize("seed", [5001, 5013, 5014])
def test_what_answers_a_finding_is_measured_on_top_though_a_replicate_is_as_noisy(seed: int) -> None:
    """The loader can save a tenth, and costs no proof: it needs less evidence than what answers nothing."""
    plan, _, _ = simulated.searched("resnet", "shared", 7.0, seed)
    assert "loader" in {it.lever for it in plan.settings}, plan


@pytest.mark.parametrize(("arms", "expected"), [(1, 10.0), (2, 10.0), (4, 20.0)])
def test_arms_start_beside_each_other_and_load_what_was_compiled(arms: int, expected: float) -> None:
    script = copy.copy(CASES["gpt"].script)
    script.startup_seconds = 10.0
    executor = simulated.OnTwoCores(script, simulated.MACHINES["shared"], seed=0)

    def starts(plan: Plan) -> list[float]:
        assignments = tuple(Assignment(workload=simulated.WORKLOAD, plan=plan) for _ in range(arms))
        return [it.startup_seconds for it in executor.take_turns(TurnRequest(arms=assignments, rounds=3)).runs]

    assert starts(Plan()) == [expected] * arms
    compiled = Plan(settings=(COMPILE,))
    assert starts(compiled) == [expected + 20.0] * arms
    assert starts(compiled) == pytest.approx([expected + 20.0 * simulated.LOADING_SHARE] * arms)


def test_the_page_counts_what_was_found(tmp_path: Path) -> None:
    out = tmp_path / "page"
    words = ["--out", str(out), "--scripts", "lstm", "--machines", "shared", "--budgets", "4", "--searches", "4"]
    assert simulated.main([*words, "--pieces", str(tmp_path / "pieces")]) == 0
    text = out.with_suffix(".md").read_text()
    (cell,) = msgspec.json.decode(out.with_suffix(".json").read_bytes())["data"]["cells"]
    assert sum(it["searches"] for it in cell["plans"]) == 4
    mean = sum(it["share"] * it["searches"] for it in cell["plans"]) / 4
    assert f"| lstm | shared | 4 min | 4 | {mean:.3f} |" in text
    assert all(0.5 < it["share"] <= 1.0 for it in cell["plans"])


def test_a_call_whose_time_is_over_says_so(tmp_path: Path) -> None:
    words = ["--out", str(tmp_path / "page"), "--searches", "1", "--minutes", "0"]
    assert simulated.main(words) == simulated.UNFINISHED
