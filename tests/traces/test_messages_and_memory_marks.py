"""Reading the messages of collectives and the memory changes that allocators report."""

from __future__ import annotations

from pathlib import Path

from trace_writer import TraceWriter, kineto_text, write_text

from hotlap.traces import Timeline, read_trace
from hotlap.traces.events import MISSING
from hotlap.traces.timeline import NONE, Message

ALL_REDUCE = {
    "Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": 8, "dtype": "Float",
    "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": 3,
}  # fmt: skip


def read(writer: TraceWriter, folder: Path, *, with_inputs: bool = True) -> Timeline:
    return read_trace(writer.write(folder / "trace.json"), with_inputs=with_inputs)


def test_a_kernel_and_its_operator_share_a_message(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "record_param_comms", 0, 50, **ALL_REDUCE)
    writer.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, 20, 100, **ALL_REDUCE)
    writer.launch("gemm", 30, 130, 100)
    line = read(writer, tmp_path)
    assert line.messages == (Message("allreduce", 1024, 1024, "Float", 8, "0", "[0, 1]", 3),)
    assert line.device.message == [0, NONE]
    assert line.operators.message == [0]


def test_invalid_messages_are_bounded(tmp_path: Path) -> None:
    odd = {"Collective name": "x" * 5000, "In msg nelems": -4, "Group size": 2**80, "dtype": "?", "flops": "many"}
    writer = TraceWriter()
    writer.host("operator", "aten::mm", 0, 50, flops=12.0)
    writer.host("operator", "record_param_comms", 60, 50, **odd)
    line = read(writer, tmp_path)
    (message,) = line.messages
    assert (len(message.collective), message.elements_in, message.group_size, message.sequence) == (200, 0, 2**24, None)
    assert line.operators.flops == [12, 0]


def test_changes_of_memory_in_the_order_of_time(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::empty", 0, 50)
    writer.memory(30, -512, 1024, reserved=4096)
    writer.memory(20, 1536, 1536, reserved=4096, address=7)
    writer.instant("Record Window End", 60)
    writer.events[-1]["args"] = None
    line = read(writer, tmp_path)
    table = line.allocations
    assert (table.start, table.change, table.allocated) == ([20_000, 30_000], [1536, -512], [1536, 1024])
    assert (table.reserved, table.device_type, table.device, table.address) == ([4096] * 2, [1] * 2, [0] * 2, [7, 1])
    assert line.coverage.events == 4
    assert line.coverage.repaired_events == 0
    assert line.coverage.other == (("arrows, instants, counters and names", 3),)


def test_legacy_marks_hold_only_changes(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::empty", 0, 50)
    writer.memory(20, 64)
    table = read(writer, tmp_path).allocations
    assert (table.change, table.allocated, table.reserved) == ([64], [MISSING], [MISSING])


def test_memory_marks_are_read_only_on_request(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::empty", 0, 50)
    writer.memory(20, 64, 64)
    line = read(writer, tmp_path, with_inputs=False)
    assert len(line.allocations) == 0
    assert line.coverage.events == 2


def test_only_the_broken_mark_is_lost(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.memory(20, 64, 64)
    writer.memory(30, 32, 96)
    writer.host("operator", "aten::empty", 0, 50)
    text = kineto_text(writer.events).replace(b'"Bytes": 64', b'"Bytes": "lots"')
    line = read_trace(write_text(tmp_path / "trace.json", text), with_inputs=True)
    assert line.allocations.change == [32]
    assert line.coverage.events == 3
