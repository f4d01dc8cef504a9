"""Causes of idle gaps, each planted in a small trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_writer import MAIN_THREAD, TraceWriter, kineto_text, training_trace

from hotlap.traces import Breakdown, analyse, read_trace
from hotlap.traces.records import Gap, Idle

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def explain(writer: TraceWriter, folder: Path) -> Idle:
    (device,) = analyse(read_trace(writer.write(folder / "trace.json"))).devices
    idle = device.idle
    assert sum(it.nanoseconds for it in idle.causes) == idle.nanoseconds == device.time.idle_nanoseconds
    assert sum(it.gaps for it in idle.causes) == idle.gaps
    return idle


def microseconds(idle: Idle) -> dict[str, float]:
    return {it.cause: it.nanoseconds / 1000 for it in idle.causes}


def only_gap(writer: TraceWriter, folder: Path) -> Gap:
    idle = explain(writer, folder)
    assert idle.gaps == 1
    return idle.longest[0]


def two_kernels(first: float = 100, gap: float = 500, launched: float | None = None) -> TraceWriter:
    """Write a kernel, a gap, and a kernel that was launched 10 microseconds before it started."""
    it = TraceWriter()
    it.launch("first", 0, 10, first)
    begin = 10 + first + gap
    it.launch("second", begin - 10 if launched is None else launched, begin, 100)
    return it


def test_queued_work_that_starts_soon_is_queue_time(tmp_path: Path) -> None:
    assert only_gap(two_kernels(gap=5, launched=20), tmp_path).cause == "queued"


def test_queued_work_that_starts_late_is_unknown(tmp_path: Path) -> None:
    gap = only_gap(two_kernels(gap=400, launched=20), tmp_path)
    assert gap.cause == "unknown"
    assert gap.before == "first"
    assert gap.after == "second"


def test_queued_work_behind_a_collective_is_communication(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch("ncclDevKernel_AllReduce", 0, 10, 100, stream=20)
    writer.launch("second", 5, 300, 50)
    assert only_gap(writer, tmp_path).cause == "communication"


def test_a_host_that_only_launches_is_launch_bound(tmp_path: Path) -> None:
    writer = two_kernels()
    writer.host("operator", "aten::add", 250, 355)
    writer.host("python", "train.py(12): training_step", 0, 700)
    writer.host("python", "torch/nn/modules/module.py(1): _call_impl", 1, 690)
    idle = explain(writer, tmp_path)
    (cause,) = idle.causes
    assert cause.cause == "launch_bound"
    assert cause.host_operator_nanoseconds == 355_000
    seen = {(it.role, it.name) for it in cause.evidence}
    assert {("operator", "aten::add"), ("place", "train.py(12): training_step"), ("call", "cudaLaunchKernel")} <= seen


def test_waiting_for_the_loader(tmp_path: Path) -> None:
    writer = two_kernels()
    writer.host("operator", LOADER, 150, 400)
    idle = explain(writer, tmp_path)
    assert microseconds(idle) == {"data_loader": 400, "launch_bound": 100}
    assert [(it.role, it.name) for it in idle.causes[0].evidence] == [("loader", LOADER)]
    assert idle.longest[0].call == LOADER


def test_a_loader_in_another_thread_is_not_the_cause(tmp_path: Path) -> None:
    writer = two_kernels()
    writer.host("operator", LOADER, 150, 400, thread=99)
    assert microseconds(explain(writer, tmp_path)) == {"launch_bound": 500}


def test_a_wait_that_drained_the_queue(tmp_path: Path) -> None:
    writer = two_kernels()
    writer.host("python", "train.py(40): main", 0, 800)
    writer.host("operator", "aten::item", 20, 110)
    writer.host("call", "cudaStreamSynchronize", 25, 95, correlation=1)
    gap = only_gap(writer, tmp_path)
    assert (gap.cause, gap.call, gap.operator) == ("host_sync", "cudaStreamSynchronize", "aten::item")
    assert gap.place == "train.py(40): main"


def test_a_wait_long_before_the_gap_is_not_its_cause(tmp_path: Path) -> None:
    writer = two_kernels()
    writer.host("call", "cudaStreamSynchronize", 25, 20)
    assert only_gap(writer, tmp_path).cause == "launch_bound"


@pytest.mark.parametrize(
    ("copy", "cause"),
    [("Memcpy HtoD (Pageable -> Device)", "blocking_copy"), ("Memcpy DtoH (Device -> Pageable)", "host_sync")],
)
def test_a_wait_for_a_copy_by_its_direction(copy: str, cause: str, tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch(copy, 0, 10, 100, kind="copy", call="MemcpyAsync", bytes=10)
    writer.host("call", "cudaStreamSynchronize", 6, 110)
    writer.launch("second", 600, 610, 50)
    assert only_gap(writer, tmp_path).cause == cause


@pytest.mark.parametrize(("calls", "call"), [("cuda", "Memcpy"), ("hip", "MemcpyWithStream"), ("hip", "Memcpy")])
def test_a_copy_call_that_blocks_by_itself(calls: str, call: str, tmp_path: Path) -> None:
    writer = TraceWriter(calls=calls)
    writer.launch("CopyHostToDevice", 0, 10, 100, kind="copy", call=call, call_length=115, bytes=10)
    writer.launch("second", 600, 610, 50)
    assert only_gap(writer, tmp_path).cause == "blocking_copy"


def test_the_time_between_steps(tmp_path: Path) -> None:
    writer = two_kernels()
    writer.step(0, 0, 300)
    writer.step(1, 300, 600)
    assert only_gap(writer, tmp_path).cause == "between_steps"


@pytest.mark.parametrize(
    "call", ["cudaGraphInstantiate", "hipModuleLoadData", "cudaStreamEndCapture", "cuModuleLoadDataEx"]
)
def test_capture_and_compilation(call: str, tmp_path: Path) -> None:
    writer = two_kernels()
    writer.host("call", call, 150, 300)
    assert microseconds(explain(writer, tmp_path)) == {"capture_or_compile": 300, "launch_bound": 200}


def test_the_first_launch_of_a_kernel_loads_its_code(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch("first", 0, 10, 100)
    writer.launch("second", 200, 5200, 100, call_length=4995)
    assert microseconds(explain(writer, tmp_path)) == {"capture_or_compile": 4995, "launch_bound": 95}


def test_calling_a_compiled_function_is_not_compilation(tmp_path: Path) -> None:
    writer = two_kernels()
    writer.host("operator", "TorchDynamo Cache Lookup", 120, 480)
    writer.host("python", "torch/_dynamo/eval_frame.py(1076): compile_wrapper", 100, 700)
    writer.host("operator", "Torch-Compiled Region: 0/0", 130, 450)
    assert microseconds(explain(writer, tmp_path)) == {"launch_bound": 500}


def test_compiling_counts_as_compilation(tmp_path: Path) -> None:
    writer = two_kernels()
    writer.host("python", "torch/_dynamo/eval_frame.py(1076): compile_wrapper", 100, 700)
    writer.host("python", "torch/_dynamo/convert_frame.py(1500): _compile", 150, 300)
    writer.host("annotation", "compile_fx.<locals>.bw_compiler (dynamo_timed)", 400, 100)
    assert microseconds(explain(writer, tmp_path)) == {"capture_or_compile": 350, "launch_bound": 150}


def test_the_forward_pass_of_ddp_is_not_communication(tmp_path: Path) -> None:
    writer = two_kernels()
    writer.host("annotation", "DistributedDataParallel.forward", 0, 700)
    assert microseconds(explain(writer, tmp_path)) == {"launch_bound": 500}


@pytest.mark.parametrize("steps", [(), (0,), (0, 1, 2)])
def test_long_setup_calls_are_initialisation(steps: tuple[int, ...], tmp_path: Path) -> None:
    writer = two_kernels(gap=30_000)
    for number in steps:
        writer.step(number, number * 40_000 - 20_000, 39_000)
    writer.host("operator", "aten::conv2d", 200, 29_900)
    writer.host("call", "cudaFree", 1_000, 20_000)
    writer.host("call", "cudaMalloc", 22_000, 500)
    idle = explain(writer, tmp_path)
    assert microseconds(idle)["initialisation"] == 20_000
    (seen,) = [it.evidence for it in idle.causes if it.cause == "initialisation"]
    assert {("operator", "aten::conv2d"), ("call", "cudaFree")} <= {(it.role, it.name) for it in seen}


def test_setup_in_every_step_is_not_initialisation(tmp_path: Path) -> None:
    writer = TraceWriter()
    for number in range(4):
        begin = number * 30_000
        writer.step(number, begin, 29_000)
        writer.host("call", "cudaFree", begin + 1_000, 20_000)
        writer.launch("gemm", begin + 22_000, begin + 22_010, 500)
    assert "initialisation" not in microseconds(explain(writer, tmp_path))


def unlinked(after: str = "second", gap: float = 140_000) -> TraceWriter:
    """Write a launched kernel, a gap, and work whose launch is not in the trace."""
    it = TraceWriter()
    it.launch("first", 0, 10, 100)
    it.device("copy" if after.startswith("Memcpy") else "kernel", after, 110 + gap, 100)
    it.launch("third", 110 + gap + 50, 110 + gap + 110, 100)
    return it


@pytest.mark.parametrize(
    ("after", "cause"),
    [("Memcpy HtoD (Pageable -> Device)", "blocking_copy"), ("Memcpy DtoH (Device -> Pageable)", "host_sync")],
)
def test_work_without_a_launch_behind_a_long_copy_call(after: str, cause: str, tmp_path: Path) -> None:
    writer = unlinked(after)
    writer.host("python", "train.py(12): training_step", 0, 150_000)
    writer.host("operator", "aten::copy_", 190, 139_920)
    writer.host("call", "cudaMemcpyAsync", 200, 139_900)
    gap = explain(writer, tmp_path).longest[0]
    assert (gap.cause, gap.call, gap.operator) == (cause, "cudaMemcpyAsync", "aten::copy_")
    assert gap.place == "train.py(12): training_step"


def test_a_long_copy_call_is_a_blocking_copy_with_a_launch_too(tmp_path: Path) -> None:
    writer = two_kernels(gap=1000)
    writer.launch("Memcpy HtoD (Pageable -> Device)", 200, 210, 1, kind="copy", call="MemcpyAsync", call_length=850)
    assert microseconds(explain(writer, tmp_path)) == {"blocking_copy": 899, "launch_bound": 100}


@pytest.mark.parametrize(
    ("kind", "name", "cause"),
    [
        ("operator", LOADER, "data_loader"),
        ("operator", "aten::add", "launch_bound"),
        ("annotation", "nccl:all_reduce", "communication"),
        ("call", "cudaStreamSynchronize", "host_sync"),
        ("python", "train.py(12): training_step", "unknown"),
    ],
)
def test_work_without_a_launch_is_explained_by_the_host(kind: str, name: str, cause: str, tmp_path: Path) -> None:
    writer = unlinked(gap=1000)
    writer.host(kind, name, 150, 900)
    assert explain(writer, tmp_path).causes[0].cause == cause


def test_work_without_a_launch_queued_by_stream_order(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch("first", 0, 10, 100)
    writer.device("kernel", "second", 115, 100)
    writer.launch("third", 20, 220, 100)
    writer.host("operator", "aten::add", 30, 180)
    assert microseconds(explain(writer, tmp_path)) == {"queued": 10}


def test_a_trace_without_any_launch_is_explained_by_its_host(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.device("kernel", "first", 0, 100)
    writer.device("kernel", "second", 1100, 100)
    writer.host("operator", LOADER, 150, 900)
    assert microseconds(explain(writer, tmp_path)) == {"data_loader": 900, "unknown": 100}


def test_the_host_part_of_a_collective(tmp_path: Path) -> None:
    writer = two_kernels()
    writer.host("annotation", "nccl:all_reduce", 200, 150)
    assert microseconds(explain(writer, tmp_path)) == {"launch_bound": 350, "communication": 150}


def test_profiler_overhead(tmp_path: Path) -> None:
    writer = two_kernels()
    overhead = {"ph": "X", "cat": "overhead", "name": "Buffer Flush", "pid": -1, "tid": 0, "ts": 200, "dur": 260}
    writer.events.append(overhead)
    assert microseconds(explain(writer, tmp_path)) == {"profiler": 260, "launch_bound": 240}


def test_overlapping_causes_count_once(tmp_path: Path) -> None:
    writer = two_kernels()
    writer.host("operator", LOADER, 150, 200)
    writer.host("call", "cudaGraphInstantiate", 250, 200)
    writer.host("annotation", "nccl:all_reduce", 100, 450)
    assert microseconds(explain(writer, tmp_path)) == {
        "data_loader": 200, "capture_or_compile": 100, "communication": 140, "launch_bound": 60
    }  # fmt: skip


def test_a_device_is_idle_when_all_its_streams_are(tmp_path: Path) -> None:
    writer = two_kernels()
    writer.launch("beside", 30, 90, 500, stream=9)
    idle = explain(writer, tmp_path)
    assert microseconds(idle) == {"launch_bound": 20}


def test_old_call_stacks_give_the_exact_line(tmp_path: Path) -> None:
    writer = two_kernels()
    stack = "torch/functional.py(12): f;train.py(77): main;train.py(90): <module>"
    writer.host("operator", "aten::item", 20, 110, **{"Call stack": stack})
    writer.host("call", "cudaStreamSynchronize", 25, 95)
    assert only_gap(writer, tmp_path).place == "train.py(77): main"


def test_a_device_with_a_single_event_or_empty_events(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch("only", 0, 10, 0)
    breakdown: Breakdown = analyse(read_trace(writer.write(tmp_path / "trace.json")))
    (device,) = breakdown.devices
    assert (device.idle.gaps, device.time.window_nanoseconds, device.time.events) == (0, 0, 1)


spans = st.tuples(st.integers(0, 400), st.integers(0, 60), st.integers(0, 3), st.booleans())


@settings(max_examples=60, deadline=None)
@given(kernels=st.lists(spans, min_size=1, max_size=12), hosts=st.lists(spans, max_size=8))
def test_every_idle_nanosecond_has_one_cause(
    kernels: list[tuple[Any, ...]], hosts: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = [LOADER, "cudaStreamSynchronize", "nccl:all_reduce", "cudaGraphInstantiate"]
    kinds = ["operator", "call", "annotation", "call"]
    writer = TraceWriter()
    for start, length, stream, linked in kernels:
        if linked:
            writer.launch("k", max(0, start - 30 * stream), start, length, stream=stream)
        else:
            writer.device("kernel", "k", start, length, stream=stream)
    for start, length, which, main in hosts:
        writer.host(kinds[which], names[which], start, length, thread=MAIN_THREAD if main else 1)
    idle = explain(writer, tmp_path_factory.mktemp("idle"))
    busy = {moment for start, length, _, _ in kernels for moment in range(start, start + length)}
    first = min(start for start, *_ in kernels)
    last = max(start + length for start, length, *_ in kernels)
    assert idle.nanoseconds == (last - first - len(busy)) * 1000 or not busy


def test_a_bigger_trace_has_evidence_for_its_main_cause(tmp_path: Path) -> None:
    text = kineto_text(training_trace(steps=8).events)
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    (device,) = analyse(read_trace(path)).devices
    main = device.idle.causes[0]
    assert main.cause == "data_loader"
    assert main.gaps == 7
    assert main.evidence[0].nanoseconds == main.nanoseconds
