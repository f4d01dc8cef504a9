"""Lanes of the timeline chart: their content, and how long traces are reduced."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from trace_writer import TraceWriter, training_trace

from hotlap.traces import read_trace
from hotlap.traces.lanes import Lanes, LaneSpan, coarser, lanes_of, merged, outermost


def of(writer: TraceWriter, folder: Path, **options: int) -> Lanes:
    found = lanes_of(read_trace(writer.write(folder / "trace.json")), **options)
    assert found is not None
    return found


spans = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60)), max_size=40).map(
    lambda them: [LaneSpan(start, start + length, f"op{length % 3}", "operator") for start, length in them]
)


@given(spans)
def test_outermost_spans_are_in_order_and_cover_the_same_time(given_spans: list[LaneSpan]) -> None:
    kept = list(outermost(given_spans))
    assert all(one.end <= other.start for one, other in pairwise(kept))
    covered = {moment for it in given_spans for moment in range(it.start, it.end)}
    assert {moment for it in kept for moment in range(it.start, it.end)} == covered


@given(spans, st.integers(0, 100))
def test_merging_loses_no_event_and_no_long_span(given_spans: list[LaneSpan], shorter_than: int) -> None:
    before = list(outermost(given_spans))
    after = list(merged(before, shorter_than))
    assert sum(it.events for it in after) == len(before)
    assert [it for it in before if it.end - it.start >= shorter_than and it in after] == [
        it for it in before if it.end - it.start >= shorter_than
    ]
    assert all(one.end <= other.start for one, other in pairwise(after))


def test_lanes_of_a_training_trace(tmp_path: Path) -> None:
    found = of(training_trace(), tmp_path)
    assert [(it.side, it.name, len(it.spans)) for it in found.lanes] == [
        ("loader", "data loader", 3),
        ("host", "main thread", 15),
        ("device", "0, stream 7", 18),
    ]
    assert (len(found.steps), found.steps_in_trace, found.merged_below) == (3, 3, 0)
    assert found.length == 2_990_000
    loader, _, device = found.lanes
    assert loader.spans[0] == (10_000, 310_000, loader.longest[0][0], "loader", 1)
    assert loader.longest == ((loader.spans[0].name, 3, 900_000),)
    assert [it.kind for it in device.spans[:2]] == ["copy", "kernel"]


def test_nested_marks_waits_and_other_threads(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 1000)
    writer.host("annotation", "Optimizer.step#AdamW.step", 600, 200)
    writer.host("operator", "aten::linear", 100, 100)
    writer.host("operator", "aten::addmm", 120, 50)
    writer.host("operator", "autograd::engine::evaluate_function: MmBackward0", 300, 100, thread=7)
    writer.host("call", "cudaStreamSynchronize", 900, 300)
    lanes = {it.name: it for it in of(writer, tmp_path).lanes}
    assert [it.name for it in lanes["main thread"].spans] == ["aten::linear"]
    assert [it.kind for it in lanes["thread 7"].spans] == ["backward"]
    assert [it.name for it in lanes["marks"].spans] == ["Optimizer.step#AdamW.step"]
    assert lanes["waiting for a device"].spans[0].end == 1_000_000, "cut where the steps end"


def test_too_many_events_are_cut_to_the_last_steps_and_merged(tmp_path: Path) -> None:
    writer = TraceWriter()
    for step in range(4):
        writer.step(step, step * 10_000, 9_990)
        for it in range(300):
            writer.host("operator", f"aten::op{it}", step * 10_000 + it * 30, 5)
    few = of(writer, tmp_path, most_spans=100)
    assert [it.number for it in few.steps] == [3]
    assert few.steps_in_trace == 4
    assert few.merged_below > 0
    assert sum(len(it.spans) for it in few.lanes) <= 100
    assert sum(it.events for it in few.lanes[0].spans) == few.lanes[0].events == 300
    fewer = coarser(few, 3)
    assert sum(len(it.spans) for it in fewer.lanes) <= 3
    assert fewer.lanes[0].busy == few.lanes[0].busy


def test_a_trace_without_steps_has_no_lanes(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::mm", 0, 10)
    assert lanes_of(read_trace(writer.write(tmp_path / "trace.json"))) is None
