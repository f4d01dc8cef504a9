"""The page of a trace: complete, within its width, and with warnings of unreliable figures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "traces"))

from trace_writer import TraceWriter, training_trace

from hotlap.render.lines import Paper
from hotlap.render.trace import CAUSES, traces_report
from hotlap.traces import Breakdown, analyse, compare_ranks, read_trace
from hotlap.traces.idle import CAUSES as KNOWN_CAUSES


def shown(*breakdowns: Breakdown, width: int = 120, **paper: bool) -> str:
    return traces_report(breakdowns, (), compare_ranks(breakdowns), Paper(width, **paper))


def breakdown_of(writer: TraceWriter, folder: Path) -> Breakdown:
    return analyse(read_trace(writer.write(folder / "trace.json")))


def rank(number: int, folder: Path, compute: int, collective: int) -> Breakdown:
    writer = TraceWriter()
    for step in range(3):
        writer.step(step, step * 1000, 1000)
        writer.launch("gemm", step * 1000 + 1, step * 1000 + 10, compute)
        writer.launch("ncclDevKernel_AllReduce", step * 1000 + 5, step * 1000 + 10 + compute, collective, stream=20)
    path = folder / f"rank{number}.json"
    return analyse(read_trace(writer.write(path, distributedInfo={"rank": number, "world_size": 4})))


def test_every_cause_has_a_description() -> None:
    assert set(CAUSES) == set(KNOWN_CAUSES)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_lines_fit_the_terminal(width: int, tmp_path: Path) -> None:
    breakdown = breakdown_of(training_trace(steps=20), tmp_path)
    text = traces_report([breakdown, breakdown], [("x" * 300, "no trace")], None, Paper(width))
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line != line.rstrip()]


def test_the_page_of_a_trace(tmp_path: Path) -> None:
    text = " ".join(shown(breakdown_of(training_trace(steps=20), tmp_path)).split())
    for expected in (
        "waiting for the data loader",
        "enumerate(DataLoader)#_Single",
        "5 per step",
        "HtoD pageable 20",
        "8 more",
    ):
        assert expected in text


def test_the_total_comes_first(tmp_path: Path) -> None:
    text = " ".join(shown(breakdown_of(training_trace(steps=20), tmp_path)).split())
    assert "Largest loss: waiting for the data loader (5.70 ms, 29 % of the time)." in text
    busy = TraceWriter()
    for kernel in range(10):
        busy.launch("gemm", kernel * 100, 10 + kernel * 100, 99)
    assert "It computes 99 % of the time: only fewer or faster kernels" in shown(breakdown_of(busy, tmp_path))
    turns = TraceWriter()
    for kernel in range(10):
        turns.launch("gemm", kernel, 10 + kernel * 100, 75)
    assert "No loss takes a tenth of the time; it computes 77 % of it." in shown(breakdown_of(turns, tmp_path))


def test_an_unreliable_trace_starts_with_a_warning(tmp_path: Path) -> None:
    writer = training_trace()
    writer.host("call", "cudaGraphLaunch", 900, 10, correlation=9_000)
    text = shown(breakdown_of(writer, tmp_path))
    assert "Do not trust these figures" in text
    assert text.index("Do not trust") < text.index("Device 0")
    assert "Largest loss" not in text


def test_a_shared_stream_of_communication_shows_its_overlap(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch("matmul", 0, 10, 100)
    writer.launch("ncclDevKernel_AllReduce", 5, 60, 100, stream=20)
    assert "50 % of it behind compute" in shown(breakdown_of(writer, tmp_path))


def test_the_straggler_is_named(tmp_path: Path) -> None:
    ranks = [rank(0, tmp_path, 500, 400), rank(2, tmp_path, 500, 400), rank(1, tmp_path, 800, 100)]
    text = " ".join(shown(*ranks).split())
    assert (
        "rank 1 is waited for: over 3 steps the others wait 30 % of the time for it; it computes 900 us longer" in text
    )
    assert "1 rank of the run left no trace" in text
    assert text.index("0 50 % 40 % 10 % 30 %") < text.index("1 80 % 10 % 10 % 0 %") < text.index("2 50 % 40 % 10 %")


def test_ranks_without_a_straggler(tmp_path: Path) -> None:
    text = " ".join(shown(rank(0, tmp_path, 500, 400), rank(1, tmp_path, 505, 395)).split())
    assert "no rank is waited for in particular" in text


def test_colours_only_if_requested(tmp_path: Path) -> None:
    breakdown = breakdown_of(training_trace(), tmp_path)
    plain, coloured = shown(breakdown), shown(breakdown, colours=True)
    assert "\x1b" not in plain
    assert "\x1b[31m█" in coloured
    drawn = shown(breakdown, colours=True, ascii_only=True)
    assert drawn.replace(str(tmp_path), "").isascii(), "names are shown as the user wrote them"


def test_steps_without_an_accelerator_show_host_time(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(7, 0, 500)
    writer.host("annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 200)
    text = shown(breakdown_of(writer, tmp_path))
    assert "step    time  loader\n     7  500 us  200 us" in text
    assert "kernels" not in text
