"""The rules about ranks: stragglers and the cost of exposed communication."""

from __future__ import annotations

import random

import pytest

from hotlap.diagnose import Profile
from hotlap.diagnose.api import all_rules
from hotlap.diagnose.rank_traces import rank_trace
from hotlap.evidence import LineSamples, RunEvidence, SampledLine
from hotlap.records import CallSite, Finding, ScriptFacts


def found(rule: str, profile: Profile) -> list[Finding]:
    return list(all_rules()[rule].check(profile))


def traced(*ranks: tuple[float, ...], **facts: object) -> Profile:
    """Make traces of ranks from their exposed communication in ms, in steps of 100 ms."""
    return Profile(
        facts=ScriptFacts(device="cuda:0", processes=len(ranks), **facts),  # type: ignore[arg-type]
        breakdowns=tuple(rank_trace(rank, *it) for rank, it in enumerate(ranks)),
    )


# ---------------------------------------------------------------------------------------------
# straggler
# ---------------------------------------------------------------------------------------------


def test_the_share_is_the_saving_of_an_even_spread() -> None:
    """Work of 60, 60, 60 and 100 ms takes 70 ms if spread evenly, so 30 of 100 ms are lost."""
    (finding,) = found("straggler", traced((40.0,) * 5, (40.0,) * 5, (0.0,) * 5, (40.0,) * 5))
    assert finding.title == "Rank 2 is slower than the others, which costs 30 % of the step."
    assert finding.share.value == pytest.approx(0.3)
    assert "100 ms per step on rank 2, 60.0 ms on the 3 others (67 % more)" in finding.evidence[0]
    assert "5 of 5 steps" in finding.evidence[1]


def lines_of(*lines: tuple[str, float, int, bool]) -> LineSamples:
    """Sampled lines of one rank: phase, seconds, line and whether it is a collective."""
    made = tuple(
        SampledLine(
            phase=phase,  # type: ignore[arg-type]
            samples=20,
            seconds=seconds,
            collective=collective,
            site=CallSite(role="call", file="/home/ada/train.py", line=line),
        )
        for phase, seconds, line, collective in lines
    )
    return LineSamples(samples=20 * len(made), lines=made)


def test_the_phase_and_the_line_of_the_slow_rank_are_named() -> None:
    """Rank 1 spends its time in forward; what rank 0 does longer outside of it is waiting for rank 1."""
    profile = Profile(
        facts=ScriptFacts(processes=2),
        rank_step_seconds=((0.13,) * 30,) * 2,
        rank_forward_seconds=((0.02,) * 30, (0.05,) * 30),
        rank_other_seconds=((0.03,) * 30, (0.001,) * 30),
        rank_lines=(
            lines_of(("other", 0.9, 40, True), ("forward", 0.6, 11, False)),
            lines_of(("forward", 1.2, 12, False), ("forward", 0.3, 11, False)),
        ),
        evidence=RunEvidence(sampled=lines_of(("other", 0.9, 40, True))),
    )
    (finding,) = found("straggler", profile)
    assert finding.title.startswith("Rank 1 is slower")
    assert "30.0 ms more than the others before backward" in finding.evidence
    assert "80 % of its time there at train.py:12" in finding.evidence
    assert finding.site is not None and finding.site.line == 12


def test_ranks_are_named_as_their_traces_name_them() -> None:
    traces = (rank_trace(6, 40, 40, 40), rank_trace(7, 1, 1, 1))
    (finding,) = found("straggler", Profile(breakdowns=traces))
    assert finding.title.startswith("Rank 7 is slower")


@pytest.mark.parametrize("seed", range(20))
def test_ranks_that_differ_by_chance_are_no_stragglers(seed: int) -> None:
    draw = random.Random(seed)
    ranks = [tuple(draw.uniform(5, 12) for _ in range(8)) for _ in range(4)]
    assert not found("straggler", traced(*ranks))


def test_one_slow_step_is_not_a_straggler() -> None:
    assert not found("straggler", traced((10, 10, 90, 10, 10), (10, 10, 1, 10, 10)))


def test_traces_are_compared_up_to_the_shorter_length() -> None:
    assert found("straggler", traced((40.0,) * 8, (1.0,) * 5))


def test_an_unreliable_trace_is_not_used() -> None:
    traces = (rank_trace(0, 40, 40, 40, unreliable="kernels are missing"), rank_trace(1, 1, 1, 1))
    assert not found("straggler", Profile(breakdowns=traces))


def test_wall_times_show_ranks_without_collectives() -> None:
    """After six warm-up steps rank 1 takes 20 ms more; spread evenly that is 10 ms."""
    rows = ((9.0,) * 6 + (0.10,) * 24, (1.0,) * 6 + (0.12,) * 24)
    (finding,) = found("straggler", Profile(rank_step_seconds=rows))
    assert finding.title.startswith("Rank 1 is slower")
    assert finding.share.value == pytest.approx(0.01 / 0.12)
    assert finding.evidence[1] == "it was last in 24 of 24 steps"


def test_a_rank_without_rows_gives_no_finding() -> None:
    assert not found("straggler", Profile(rank_step_seconds=((0.1,) * 30, ())))


# ---------------------------------------------------------------------------------------------
# exposed-communication
# ---------------------------------------------------------------------------------------------


def test_the_rank_that_waits_least_gives_the_share() -> None:
    (finding,) = found("exposed-communication", traced((40.0,) * 5, (15.0,) * 5))
    assert finding.share.value == pytest.approx(0.15)
    assert finding.title == "Communication that does not overlap with computation takes 15 % of the step."
    assert finding.evidence[0] == "rank 1: 15.0 ms of 100 ms, 5 profiled steps"
    assert "on rank 0 it is 40 %" in finding.evidence[1]


@pytest.mark.parametrize(("exposed", "fires"), [(1.9, False), (2.1, True)])
def test_only_material_communication_counts(exposed: float, fires: bool) -> None:
    assert bool(found("exposed-communication", traced((exposed,) * 5))) is fires


def test_many_steps_give_an_interval() -> None:
    draw = random.Random(0)
    (finding,) = found("exposed-communication", traced(tuple(draw.uniform(10, 30) for _ in range(32))))
    assert finding.share.low < finding.share.value < finding.share.high
    assert "95 % interval" in finding.title


def test_accumulated_gradients_should_be_reduced_once() -> None:
    (finding,) = found("exposed-communication", traced((40.0,) * 5, backwards_per_step=4.0))
    assert "no_sync()" in finding.remedy
    assert "4 backward passes for each optimizer step" in finding.evidence


# ---------------------------------------------------------------------------------------------
# data-parallel
# ---------------------------------------------------------------------------------------------


def test_data_parallel_names_its_line() -> None:
    (finding,) = found("data-parallel", all_rules()["data-parallel"].fires["four devices"])
    assert finding.kind == "hint"
    assert finding.site is not None and finding.site.line == 24
    assert "torchrun" in finding.remedy
