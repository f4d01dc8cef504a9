"""Communication that nothing is computed next to, on a device and with gloo, by the collective's place in its step."""

from __future__ import annotations

from pathlib import Path

import pytest
from trace_writer import LEGACY, TraceWriter

from hotlap.traces import ExposedCommunication, collective_log, compare_collectives, exposed_communication, read_trace
from hotlap.traces.collectives import CollectiveCall, message_bytes

STEP = 1000
RANKS = {"distributedInfo": {"rank": 0, "world_size": 2}}


def inputs(*shape: int, kind: str = "float") -> dict[str, object]:
    return {"Input Dims": [list(shape)], "Input type": [kind]}


def read(
    writer: TraceWriter, folder: Path, **fields: object
) -> tuple[ExposedCommunication | None, list[CollectiveCall]]:
    timeline = read_trace(writer.write(folder / "trace.json", **(fields or RANKS)), with_inputs=True)
    log = collective_log(timeline)
    return exposed_communication(timeline, log.calls), list(log.calls)


def gloo_trace() -> TraceWriter:
    """Backward from 100 to 500; the first bucket is exchanged meanwhile, the second until 700."""
    writer = TraceWriter()
    for begin in writer.steps(2, STEP):
        writer.host("operator", "autograd::engine::evaluate_function: MmBackward0", begin + 100, 800)
        writer.host("operator", "aten::mm", begin + 100, 400)
        writer.host("operator", "c10d::allreduce_", begin + 500, 10)
        writer.host("annotation", "gloo:all_reduce", begin + 200, 200, thread=9, **inputs(1000))
        writer.host("annotation", "gloo:all_reduce", begin + 450, 250, thread=9, **inputs(50, 10))
        writer.host("operator", "aten::add_", begin + 720, 80)
    return writer


def test_gloo_next_to_operators_is_hidden(tmp_path: Path) -> None:
    found, _ = read(gloo_trace(), tmp_path)
    assert found is not None and found.rank == 0 and len(found.steps) == 2
    assert found.exposed == (200_000, 200_000)
    (last,) = found.calls
    assert (last.collective, last.position, last.count, last.message_bytes) == ("all-reduce", 2, 2, 2000)
    assert last.nanoseconds == 400_000


def test_on_a_device_kernels_count(tmp_path: Path) -> None:
    writer = TraceWriter()
    for begin in writer.steps(3, STEP):
        writer.host("operator", "aten::mm", begin, 990)
        writer.launch("sgemm", begin + 1, begin + 100, 300)
        writer.launch("ncclDevKernel_AllReduce_Sum_f32", begin + 2, begin + 300, 400, stream=20)
    found, _ = read(writer, tmp_path)
    assert found is not None and found.exposed == (300_000,) * 3
    assert [(it.position, it.count, it.message_bytes) for it in found.calls] == [(1, 1, 0)]


def test_without_a_rank_or_a_step_there_is_none(tmp_path: Path) -> None:
    assert read(gloo_trace(), tmp_path, other=1)[0] is None
    writer = TraceWriter()
    writer.host("annotation", "gloo:all_reduce", 10, 20, thread=9)
    assert read(writer, tmp_path)[0] is None


@pytest.mark.parametrize(
    ("name", "arguments", "size"),
    [
        ("gloo:all_reduce", inputs(100), 400),
        ("gloo:all_reduce", {"Input Dims": [[10], [2, 5]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}, 40),
        ("gloo:all_gather", inputs(100), 800),
        ("gloo:reduce_scatter", inputs(100, kind="double"), 800),
    ],
)
def test_sizes_of_gloos_collectives(name: str, arguments: dict[str, object], size: int, tmp_path: Path) -> None:
    writer = TraceWriter()
    for begin in writer.steps(1, STEP):
        writer.host("annotation", name, begin + 10, 20, thread=9, **arguments)
    (call,) = read(writer, tmp_path)[1]
    assert call.message is not None and message_bytes(call.message) == size and call.message.group_size == 2


@pytest.mark.parametrize("arguments", [{}, inputs(100, kind="Scalar"), {"Input Dims": "x", "Input type": 3}])
def test_messages_that_were_not_recorded(arguments: dict[str, object], tmp_path: Path) -> None:
    writer = TraceWriter()
    for begin in writer.steps(1, STEP):
        writer.host("annotation", "gloo:all_reduce", begin + 10, 20, thread=9, **arguments)
    (call,) = read(writer, tmp_path)[1]
    assert call.message is None


def test_annotations_of_old_profilers_keep_their_inputs(tmp_path: Path) -> None:
    writer = TraceWriter(categories=dict(LEGACY))
    for begin in writer.steps(2, STEP):
        writer.host("annotation", "gloo:all_reduce", begin + 10, 20, thread=9, **inputs(100))
    calls = read(writer, tmp_path)[1]
    assert all(it.message is not None and message_bytes(it.message) == 400 for it in calls)


def test_shared_calls_have_their_median_and_ranks(tmp_path: Path) -> None:
    logs = []
    for rank in range(2):
        writer = TraceWriter()
        for number, begin in enumerate(writer.steps(3, STEP)):
            start = begin + 100 + 50 * rank
            end = begin + 300 + 100 * number
            writer.host("annotation", "gloo:all_reduce", start, end - start, thread=9, **inputs(1000))
        path = writer.write(tmp_path / f"{rank}.json", distributedInfo={"rank": rank, "world_size": 2})
        logs.append(collective_log(read_trace(path, with_inputs=True)))
    found = compare_collectives(logs)
    assert found is not None
    (row,) = found.rows
    assert row.ranks == (0, 1) and row.message_bytes == 4000
    assert (row.typical_nanoseconds, row.shortest_nanoseconds) == (250_000, 150_000)
    assert row.bus_bytes_per_second == pytest.approx(3 * 4000 / 750e-6)
