"""Collectives that several ranks ran together: which rank came last, and how long the others waited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trace_writer import TraceWriter

from hotlap.render.lines import Paper
from hotlap.render.trace_collectives import arrival_lines
from hotlap.traces import CollectiveComparison, CollectiveLog, collective_log, compare_collectives, read_trace

STEP = 1000
ALL_REDUCE = {
    "Collective name": "allreduce", "In msg nelems": 250_000, "Out msg nelems": 250_000, "Group size": 2,
    "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]",
}  # fmt: skip


def rank(
    number: int | None,
    folder: Path,
    starts: list[int],
    *,
    ends: int = 500,
    clock: int = 0,
    first: int = 0,
    size: int = 2,
    numbered: bool = True,
    described: bool = True,
    steps: list[int] | None = None,
    **more: Any,
) -> CollectiveLog:
    """Write a rank with an all-reduce in each step that ends at 500 microseconds, by a clock that is ahead.
    ``steps`` says in which steps they are instead."""
    writer = TraceWriter()
    where = steps or list(range(len(starts)))
    for step in sorted(set(where)):
        writer.step(step, step * STEP + clock, STEP - 10)
    for index, (step, start) in enumerate(zip(where, starts, strict=True)):
        begin = step * STEP + clock
        sequence = {"Seq": first + index} if numbered else {}
        message = {**ALL_REDUCE, **sequence, **more} if described else {}
        writer.launch("ncclDevKernel_AllReduce", begin + 1, begin + start, ends - start, stream=20, **message)
    fields: dict[str, Any] = {} if number is None else {"distributedInfo": {"rank": number, "world_size": size}}
    folder.mkdir(exist_ok=True)
    path = writer.write(folder / f"rank{number}.json", **fields)
    return collective_log(read_trace(path, with_inputs=True))


def compared(*logs: CollectiveLog) -> CollectiveComparison:
    found = compare_collectives(logs)
    assert found is not None
    return found


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("described", [True, False])
def test_the_rank_whose_kernel_starts_last_is_waited_for(tmp_path: Path, numbered: bool, described: bool) -> None:
    known: dict[str, Any] = {"numbered": numbered, "described": described}
    found = compared(rank(1, tmp_path, [400, 450, 100], **known), rank(0, tmp_path, [100, 50, 200], **known))
    zero, one = found.ranks
    assert (zero.rank, zero.collectives, zero.times_last, zero.waited_for_nanoseconds) == (0, 3, 1, 100_000)
    assert (one.rank, one.collectives, one.times_last, one.waited_for_nanoseconds) == (1, 3, 2, 700_000)
    assert (zero.waiting_nanoseconds, one.waiting_nanoseconds) == (700_000, 100_000)
    assert [(it.rank, it.nanoseconds, it.step) for it in found.latest] == [
        (1, 400_000, 1),
        (1, 300_000, 0),
        (0, 100_000, 2),
    ]
    assert (found.matched, found.unmatched) == (3, 0)


def test_bandwidth_without_waiting(tmp_path: Path) -> None:
    found = compared(rank(0, tmp_path, [100, 100]), rank(1, tmp_path, [400, 400]))
    (row,) = found.rows
    assert (row.calls, row.transfer_nanoseconds, row.waiting_nanoseconds) == (2, 200_000, 600_000)
    assert row.bus_bytes_per_second == pytest.approx(10**6 / 100e-6)


def test_clocks_are_aligned_by_the_ends(tmp_path: Path) -> None:
    found = compared(rank(0, tmp_path, [100, 100]), rank(1, tmp_path, [300, 300], clock=-5000))
    assert [it.clock_offset_nanoseconds for it in found.ranks] == [0, -5_000_000]
    assert [it.times_last for it in found.ranks] == [0, 2]
    assert found.ranks[0].waiting_nanoseconds == 400_000
    assert "-5.00 ms" in "\n".join(arrival_lines(found, Paper(width=120)))


def test_three_ranks_in_two_groups(tmp_path: Path) -> None:
    """Align the clocks of ranks 0 and 2, which share no collective, through rank 1."""
    one: dict[str, Any] = {"Process Group Ranks": "[0, 1]"}
    other: dict[str, Any] = {"Process Group Ranks": "[1, 2]", "Process Group Name": "1"}
    first = rank(0, tmp_path / "a", [100], size=3, **one)
    both = [rank(1, tmp_path / it, [200], size=3, **these) for it, these in (("b", one), ("c", other))]
    middle = both[0]._replace(calls=(*both[0].calls, *both[1].calls))
    last = rank(2, tmp_path / "d", [400], size=3, clock=7, **other)
    found = compared(first, middle, last)
    assert [(it.rank, it.collectives, it.times_last) for it in found.ranks] == [(0, 1, 0), (1, 2, 1), (2, 1, 1)]
    assert [it.clock_offset_nanoseconds for it in found.ranks] == [0, 0, 7000]


def test_collectives_that_gloo_ran_on_the_host(tmp_path: Path) -> None:
    logs = []
    for number, start in enumerate((100, 400)):
        writer = TraceWriter()
        for begin in writer.steps(2, STEP):
            writer.host("annotation", "gloo:all_reduce", begin + start, 500 - start, thread=9)
            writer.host("annotation", "nccl:all_reduce", begin + 1, 5)
        fields = {"distributedInfo": {"rank": number, "world_size": 2}}
        logs.append(collective_log(read_trace(writer.write(tmp_path / f"{number}.json", **fields), with_inputs=True)))
    assert [(it.kind, it.step) for it in logs[0].calls] == [("all-reduce", 0), ("all-reduce", 1)]
    late = compared(*logs).ranks[1]
    assert (late.times_last, late.waited_for_nanoseconds) == (2, 600_000)


def test_collectives_are_matched_by_number_in_other_windows(tmp_path: Path) -> None:
    found = compared(rank(0, tmp_path, [100, 100, 100], first=5), rank(1, tmp_path, [300, 300], first=6, steps=[1, 2]))
    assert (found.matched, found.unmatched) == (2, 1)
    assert found.ranks[1].times_last == 2


def test_collectives_are_not_matched_if_call_counts_differ(tmp_path: Path) -> None:
    zero = rank(0, tmp_path, [100, 100, 100], numbered=False, steps=[0, 1, 1])
    one = rank(1, tmp_path, [300, 300], numbered=False, steps=[0, 1])
    found = compared(zero, one)
    assert (found.matched, found.unmatched) == (1, 2)
    assert [it.step for it in found.latest] == [0]


def test_no_rank_waits_longer_than_its_kernel_runs(tmp_path: Path) -> None:
    """Let the first all-reduces align the clocks, and the last one end at different times."""
    zero = rank(0, tmp_path / "a", [100, 100, 100])
    one = rank(1, tmp_path / "b", [100, 100, 100])
    late = one.calls[2]._replace(start=one.calls[2].start + 900_000, end=one.calls[2].end + 900_000)
    found = compared(zero, one._replace(calls=(*one.calls[:2], late)))
    assert found.ranks[0].waiting_nanoseconds == 400_000


def test_ranks_that_cannot_be_compared(tmp_path: Path) -> None:
    zero = rank(0, tmp_path / "a", [100])
    assert compare_collectives([]) is None
    assert compare_collectives([zero]) is None
    assert compare_collectives([zero, rank(0, tmp_path / "b", [300])]) is None
    assert compare_collectives([zero, rank(None, tmp_path / "c", [300])]) is None
    assert compare_collectives([zero, rank(1, tmp_path / "d", [300], size=8)]) is None
    other: dict[str, Any] = {"Process Group Name": "other"}
    assert compare_collectives([zero, rank(1, tmp_path / "e", [300], **other)]) is None
    sends: dict[str, Any] = {"Collective name": "send"}
    assert compare_collectives([rank(it, tmp_path / f"f{it}", [100], **sends) for it in range(2)]) is None


def test_the_page(tmp_path: Path) -> None:
    found = compared(rank(0, tmp_path, [100, 100]), rank(1, tmp_path, [400, 300]))
    page = "\n".join(arrival_lines(found, Paper(width=120)))
    assert "2 collectives matched between ranks" in page
    first_row = next(line for line in page.splitlines() if "of 2" in line)
    assert first_row.split() == ["1", "2", "of", "2", "500", "us", "0", "ms", "rank1.json"]
    assert "all-reduce 0" in page
    assert list(arrival_lines(None, Paper())) == []
