"""The critical path: the work that determined how long the steps took."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest
from trace_writer import TraceWriter, training_trace

from hotlap.render.lines import Paper
from hotlap.render.trace_path import path_lines
from hotlap.traces import CriticalPath, read_trace
from hotlap.traces.critical_path import critical_path

OTHER_THREAD = 99


def path(writer: TraceWriter, folder: Path) -> CriticalPath:
    found = critical_path(read_trace(writer.write(folder / "trace.json"), with_inputs=True))
    assert found is not None
    assert sum(it.nanoseconds for it in found.parts) == found.nanoseconds
    for step in found.steps:
        assert sum(it.nanoseconds for it in step.parts) == step.nanoseconds
    return found


def parts(writer: TraceWriter, folder: Path) -> dict[str, float]:
    """Return the microseconds on the path by kind."""
    return {it.kind: it.nanoseconds / 1000 for it in path(writer, folder).parts}


def test_a_busy_device_is_the_critical_path(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 100)
    writer.host("operator", "aten::mm", 5, 90)
    for index in range(10):
        writer.launch("gemm", 10 + index * 8, 20 + index * 101, 100)
    assert parts(writer, tmp_path) == {"compute": 1000, "queue": 9, "launch": 10, "operator": 5, "python": 5}


def test_a_host_that_launches_too_slowly_is_the_critical_path(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 1000)
    for index in range(5):
        begin = 10 + index * 200
        writer.host("operator", "aten::mm", begin, 150)
        writer.launch("gemm", begin + 100, begin + 106, 20)
    assert parts(writer, tmp_path) == {"operator": 750, "python": 250}


def test_a_wait_leads_to_what_was_waited_for(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 1000)
    writer.host("operator", "aten::mm", 10, 50)
    writer.launch("gemm", 20, 30, 500)
    writer.host("call", "cudaStreamSynchronize", 100, 435)
    writer.host("operator", "aten::add", 600, 300)
    assert parts(writer, tmp_path) == {
        "compute": 500,
        "launch": 10,
        "sync_return": 5,
        "operator": 10 + 300,
        "python": 10 + 65 + 100,
    }


def test_a_wait_for_finished_work_stays_on_the_host(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 1000)
    writer.launch("gemm", 20, 30, 50)
    writer.host("call", "cudaStreamSynchronize", 500, 5)
    assert set(parts(writer, tmp_path)) == {"operator", "python"}


def test_the_data_loader(tmp_path: Path) -> None:
    found = path(training_trace(steps=3), tmp_path)
    shares = {it.kind: it.nanoseconds / 1000 for it in found.parts}
    assert shares["loader"] == 900
    assert "compute" not in shares
    longest = found.contributors[0]
    assert (longest.kind, longest.nanoseconds, longest.times) == ("loader", 900_000, 3)


def test_communication_and_copies_on_the_path(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 30)
    writer.launch("gemm", 1, 10, 100)
    writer.launch("ncclDevKernel_AllReduce", 7, 110, 200)
    writer.launch("Memcpy DtoH (Device -> Pinned)", 14, 310, 40, kind="copy", call="MemcpyAsync")
    found = parts(writer, tmp_path)
    assert (found["compute"], found["communication"], found["copy"]) == (100, 200, 40)


def test_work_of_another_stream_is_waited_for(tmp_path: Path) -> None:
    """Let the optimizer's kernel wait for the all-reduce: it was launched early and its stream was free."""
    writer = TraceWriter()
    writer.step(0, 0, 40)
    writer.launch("gemm", 1, 10, 100)
    writer.launch("ncclDevKernel_AllReduce", 12, 112, 300, stream=20)
    writer.launch("adam", 20, 414, 50)
    writer.launch("unrelated", 25, 100, 50, stream=21)
    found = parts(writer, tmp_path)
    assert (found["compute"], found["communication"]) == (150, 300)


def test_a_kernel_that_starts_at_launch_waits_for_no_stream(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 20)
    writer.launch("other", 1, 3, 100, stream=20)
    writer.launch("gemm", 90, 110, 100)
    assert parts(writer, tmp_path)["compute"] == 100


def test_steps_are_cut_where_they_begin(tmp_path: Path) -> None:
    writer = TraceWriter()
    for begin in writer.steps(3, 100):
        writer.launch("gemm", begin + 10, begin * 5 + 20, 480)
    found = path(writer, tmp_path)
    assert [it.number for it in found.steps] == [0, 1, 2]
    assert [it.nanoseconds // 1000 for it in found.steps] == [100, 100, 1300]
    assert found.nanoseconds == 1_500_000
    assert [it.kind for it in found.steps[1].parts] == ["compute"]


def test_a_trace_without_steps(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch("gemm", 10, 20, 100)
    writer.launch("gemm", 30, 130, 100)
    found = path(writer, tmp_path)
    assert (found.nanoseconds, found.steps) == (220_000, ())
    assert {it.kind: it.nanoseconds for it in found.parts} == {"compute": 200_000, "queue": 10_000, "launch": 10_000}


def test_a_wait_of_another_thread_is_off_the_path(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 1000)
    writer.host("operator", "aten::conv2d", 0, 900)
    writer.launch("gemm", 890, 905, 200)
    writer.launch("copied", 100, 110, 290, thread=OTHER_THREAD, stream=9)
    writer.host("call", "cudaStreamSynchronize", 150, 255, thread=OTHER_THREAD)
    assert parts(writer, tmp_path)["operator"] == 890


def test_a_wait_of_the_backward_thread_is_on_the_path(tmp_path: Path) -> None:
    """Let autograd's thread wait for the device while the main thread records nothing."""
    writer = TraceWriter()
    writer.step(0, 0, 1000)
    writer.launch("gemm", 100, 110, 390, thread=OTHER_THREAD)
    writer.host("call", "cudaStreamSynchronize", 150, 352, thread=OTHER_THREAD)
    writer.launch("adam", 600, 610, 500)
    found = parts(writer, tmp_path)
    assert (found["compute"], found["sync_return"]) == (890, 2)


def test_contributors_name_their_launching_operators(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 100)
    writer.host("python", "train.py(7): step", 2, 90)
    writer.host("operator", "aten::linear", 5, 60)
    writer.host("operator", "aten::addmm", 6, 50)
    writer.launch("gemm", 10, 20, 300)
    writer.launch("gemm", 30, 321, 100)
    longest = path(writer, tmp_path).contributors[0]
    assert (longest.name, longest.kind, longest.nanoseconds, longest.times) == ("gemm", "compute", 400_000, 2)
    assert (longest.operator, longest.place) == ("aten::linear", "train.py(7): step")


def test_inconsistent_times_do_not_loop_forever(tmp_path: Path) -> None:
    """Write empty events, launches after their kernels, and overlapping waits."""
    writer = TraceWriter()
    writer.step(0, 0, 100)
    for index in range(20):
        writer.launch("odd", 50, 50, 0, stream=index % 3, call_length=0)
        writer.host("call", "cudaDeviceSynchronize", 50, 0)
        writer.launch("late", 60, 40, 10, stream=index % 2)
    assert path(writer, tmp_path).nanoseconds == 100_000


def test_without_a_device_there_is_no_path(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::mm", 0, 100)
    assert critical_path(read_trace(writer.write(tmp_path / "trace.json"))) is None
    assert list(path_lines(None, Paper())) == []


def test_with_unknown_launches_the_previous_kernel_is_followed(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 100)
    writer.launch("gemm", 5, 10, 20)
    writer.device("kernel", "stray", 60, 100)
    found = parts(writer, tmp_path)
    assert (found["compute"], found["queue"], found["python"]) == (120, 30, 5)


def test_with_unknown_launches_the_rest_is_host_time(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 100)
    writer.launch("gemm", 5, 10, 20)
    writer.device("kernel", "stray", 60, 100, stream=9)
    found = parts(writer, tmp_path)
    assert (found["compute"], found["operator"] + found["python"]) == (100, 60)


def test_the_page(tmp_path: Path) -> None:
    page = "\n".join(path_lines(path(training_trace(steps=2), tmp_path), Paper(width=120)))
    assert "determined the duration of 2 steps" in page
    assert "host, waiting for the data loader" in page
    assert "enumerate(DataLoader)#_SingleProcessData" in page


@pytest.mark.slow
def test_the_path_through_a_million_events_takes_seconds(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 1_200_000)
    for index in range(100_000):
        writer.launch("gemm", index * 10, index * 11 + 10, 11)
        writer.host("operator", "aten::mm", index * 10, 8)
    line = read_trace(writer.write(tmp_path / "trace.json"), with_inputs=True)
    began = process_time()
    found = critical_path(line)
    assert found is not None
    assert process_time() - began < 20
