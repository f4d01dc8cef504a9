"""Several ranks compared: which rank the others wait for, and for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from trace_writer import TraceWriter

from hotlap.diagnose.trace_verdict import verdict_of_ranks
from hotlap.traces import Breakdown, RankComparison, analyse, compare_ranks, read_trace

STEP = 1000


def rank(
    number: int | None,
    folder: Path,
    compute: list[int],
    *,
    hidden: int = 0,
    size: int = 3,
    first: int = 0,
    marked: bool = True,
) -> Breakdown:
    """Write steps of 1000 microseconds: compute, then a collective to the end of the step.

    ``hidden`` microseconds of the collective overlap with more compute.
    """
    writer = TraceWriter()
    for index, length in enumerate(compute):
        begin = index * STEP
        if marked:
            writer.step(first + index, begin, STEP)
        writer.launch("gemm", begin + 1, begin + 10, length)
        writer.launch("ncclDevKernel_AllReduce", begin + 5, begin + 10 + length, 980 - length, stream=20)
        if hidden:
            writer.launch("gemm", begin + 6, begin + 10 + length, hidden)
    fields: dict[str, Any] = {} if number is None else {"distributedInfo": {"rank": number, "world_size": size}}
    folder.mkdir(exist_ok=True)
    return analyse(read_trace(writer.write(folder / f"rank{number}-{first}.json", **fields)))


def compared(*breakdowns: Breakdown) -> RankComparison:
    found = compare_ranks(breakdowns)
    assert found is not None
    return found


def test_the_rank_that_comes_last_is_waited_for(tmp_path: Path) -> None:
    lengths = {0: [500, 500, 500], 1: [800, 800, 800], 2: [600, 400, 500]}
    found = compared(*(rank(number, tmp_path, it) for number, it in reversed(lengths.items())))
    assert [it.rank for it in found.ranks] == [0, 1, 2]
    assert found.waited_for == 1
    assert [it.waiting_nanoseconds for it in found.ranks] == [900_000, 0, 900_000]
    assert found.waiting_share == pytest.approx(0.3)
    assert found.steps == (0, 1, 2)
    assert found.missing_ranks == 0
    one = found.ranks[1]
    assert (one.compute_nanoseconds, one.window_nanoseconds) == (2_400_000, 3_000_000)
    assert one.exposed_communication_nanoseconds == 3 * 180_000
    assert one.idle_nanoseconds == 60_000


def test_the_verdict_without_steps_is_of_the_trace(tmp_path: Path) -> None:
    lengths = {0: [500, 500, 500], 1: [800, 800, 800]}
    found = [rank(number, tmp_path, it, marked=False) for number, it in lengths.items()]
    verdict = verdict_of_ranks(found, compared(*found))
    assert verdict is not None
    (finding,) = [it for it in verdict.findings if it.rule == "straggler"]
    assert "of the trace for rank 1" in finding.title
    assert not any("of the step" in line for it in verdict.findings for line in (it.title, *it.evidence))


def test_waiting_hidden_behind_computation_costs_nothing(tmp_path: Path) -> None:
    found = compared(rank(0, tmp_path, [500], hidden=300), rank(1, tmp_path, [800]))
    assert found.waited_for is None
    assert found.waiting_share == 0


def test_ranks_that_take_turns_have_no_straggler(tmp_path: Path) -> None:
    found = compared(rank(0, tmp_path, [500, 800]), rank(1, tmp_path, [800, 500]))
    assert found.waited_for is None
    assert [it.waiting_nanoseconds for it in found.ranks] == [300_000, 300_000]
    assert found.waiting_share == pytest.approx(0.15)


def test_small_differences_name_no_straggler(tmp_path: Path) -> None:
    found = compared(rank(0, tmp_path, [500, 500]), rank(1, tmp_path, [515, 515]))
    assert found.waited_for is None
    assert 0 < found.waiting_share < 0.02


def test_whole_windows_where_no_steps_are_marked(tmp_path: Path) -> None:
    found = compared(rank(0, tmp_path, [300], marked=False), rank(1, tmp_path, [700], marked=False))
    assert (found.steps, found.waited_for) == ((), 1)
    assert found.ranks[0].waiting_nanoseconds == 400_000


def test_ranks_that_cannot_be_compared(tmp_path: Path) -> None:
    zero, one = rank(0, tmp_path, [500]), rank(1, tmp_path, [800])
    assert compare_ranks([]) is None
    assert compare_ranks([zero]) is None
    assert compare_ranks([zero, rank(0, tmp_path / "again", [800])]) is None
    assert compare_ranks([zero, rank(None, tmp_path, [800])]) is None
    assert compare_ranks([zero, rank(1, tmp_path, [800], size=8)]) is None
    assert compare_ranks([zero, rank(1, tmp_path, [800], first=50)]) is None
    assert compare_ranks([zero, msgspec.structs.replace(one, unreliable="some work is missing")]) is None
    alone = TraceWriter()
    alone.launch("gemm", 0, 10, 100)
    path = alone.write(tmp_path / "alone.json", distributedInfo={"rank": 1, "world_size": 3})
    assert compare_ranks([zero, analyse(read_trace(path))]) is None


def test_the_window_with_the_most_ranks_is_used(tmp_path: Path) -> None:
    early = [rank(number, tmp_path, [500, 500]) for number in range(2)]
    late = [rank(number, tmp_path, [500 + 100 * number], first=90) for number in range(3)]
    found = compared(*early, *late)
    assert found.steps == (90,)
    assert (found.waited_for, len(found.ranks), found.missing_ranks) == (2, 3, 0)
    assert compared(*early).missing_ranks == 1
