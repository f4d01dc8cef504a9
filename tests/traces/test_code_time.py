"""Time by module and source line: nesting, and backward attributed to its forward operator.

Times of the constructed traces are microseconds.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from layers_in_traces import BACKWARD_THREAD, ENGINE, backward, module, sequence, two_layers
from test_reference import REFERENCE, TRACES
from trace_writer import MAIN_THREAD, TraceWriter

from hotlap.traces import Attribution, code_time, operators, read_trace
from hotlap.traces.code_records import CodeTime, DirectedTime


def of(writer: TraceWriter, folder: Path, **options: Any) -> CodeTime:
    found = code_time(Attribution(read_trace(writer.write(folder / "trace.json"), with_inputs=True)), **options)
    assert found is not None
    return found


def microseconds(time: DirectedTime) -> tuple[float, ...]:
    """Return own and total forward, then own and total backward, in microseconds."""
    parts = (
        time.forward_self_nanoseconds, time.forward_nanoseconds, time.backward_self_nanoseconds,
        time.backward_nanoseconds,
    )  # fmt: skip
    return tuple(it / 1000 for it in parts)


def modules(code: CodeTime) -> dict[str, tuple[float, ...]]:
    return {"/".join(it.path): microseconds(it.device) for it in code.modules}


def lines(code: CodeTime) -> dict[str, tuple[float, ...]]:
    return {it.place: microseconds(it.device) for it in code.lines}


def test_inner_modules_count_for_outer_modules(tmp_path: Path) -> None:
    writer = TraceWriter()
    two_layers(writer)
    writer.host("operator", "aten::sum", 400, 20)
    writer.launch("sum", 402, 1400, 3)
    code = of(writer, tmp_path)
    assert modules(code) == {"Net": (5, 125, 0, 0), "Net/Linear": (120, 120, 0, 0)}
    assert [(it.instances, it.calls) for it in code.modules] == [(1, 1), (2, 2)]
    assert microseconds(code.outside_modules.device) == (3, 3, 0, 0)
    assert lines(code) == {"model.py(9): forward": (125, 125, 0, 0), "train.py(5): step": (3, 128, 0, 0)}
    assert not code.exact_lines


def test_backward_counts_for_its_forward_operator(tmp_path: Path) -> None:
    writer = TraceWriter()
    two_layers(writer)
    backward(writer, 11, 600, 2000, 140)
    backward(writer, 10, 650, 2200, 100)
    writer.host("operator", ENGINE + "torch::autograd::AccumulateGrad", 700, 20, thread=BACKWARD_THREAD)
    writer.launch("add", 705, 2400, 9, thread=BACKWARD_THREAD)
    code = of(writer, tmp_path)
    assert modules(code) == {"Net": (5, 125, 0, 240), "Net/Linear": (120, 120, 240, 240)}
    assert lines(code)["model.py(9): forward"] == (125, 125, 240, 240)
    assert microseconds(code.unmapped_backward.device) == (0, 0, 9, 9)
    assert microseconds(code.outside_lines.device) == (0, 0, 9, 9)


def test_backward_on_the_forward_thread_counts_for_the_module(tmp_path: Path) -> None:
    writer = TraceWriter()
    two_layers(writer)
    backward(writer, 10, 300, 2000, 100, thread=MAIN_THREAD)
    code = of(writer, tmp_path)
    assert modules(code)["Net/Linear"] == (120, 120, 100, 100)
    assert lines(code)["train.py(5): step"] == (0, 125, 0, 100)
    assert lines(code)["model.py(9): forward"] == (125, 125, 100, 100)


def test_operators_of_backward_name_the_line_of_forward(tmp_path: Path) -> None:
    writer = TraceWriter()
    two_layers(writer)
    backward(writer, 10, 300, 2000, 100, thread=MAIN_THREAD)
    backward(writer, 99, 400, 2200, 100, thread=MAIN_THREAD)
    rows = {it.name: it for it in operators(read_trace(writer.write(tmp_path / "trace.json"), with_inputs=True))}
    assert (rows["aten::mm"].place, rows["aten::mm"].forward_place) == ("train.py(5): step", "model.py(9): forward")
    assert (rows["aten::addmm"].place, rows["aten::addmm"].forward_place) == ("model.py(9): forward", "")


def test_the_place_of_an_operator_in_an_installed_package_is_the_line_that_called_it(tmp_path: Path) -> None:
    writer = TraceWriter()
    two_layers(writer)
    timeline = read_trace(writer.write(tmp_path / "trace.json"), with_inputs=True)
    known = Attribution(timeline, libraries=("model",))
    assert {it.place for it in operators(timeline, attribution=known)} == {"train.py(5): step"}
    assert "model.py(9): forward" in {it.place for it in operators(timeline)}


def test_the_last_operator_with_a_sequence_number_made_the_node(tmp_path: Path) -> None:
    writer = TraceWriter()
    module(writer, "Early_0", 0, 30)
    writer.host("operator", "aten::zeros", 10, 10, **sequence(10))
    module(writer, "Late_0", 40, 30)
    writer.host("operator", "aten::addmm", 50, 10, **sequence(10))
    backward(writer, 10, 600, 2000, 100)
    assert modules(of(writer, tmp_path)) == {"Late": (0, 0, 100, 100), "Early": (0, 0, 0, 0)}


def test_each_forward_thread_has_its_own_sequence_numbers(tmp_path: Path) -> None:
    writer = TraceWriter()
    for thread, (name, numbers) in {20: ("First_0", (4, 5)), 30: ("Second_0", (5, 6))}.items():
        module(writer, name, 0, 100, thread=thread)
        for index, number in enumerate(numbers):
            writer.host("operator", "aten::addmm", 10 + 20 * index, 10, thread=thread, **sequence(number))
    for index, number in enumerate((6, 5)):
        backward(writer, number, 600 + 50 * index, 2000 + 100 * index, 60, forward_thread=8)
    assert modules(of(writer, tmp_path)) == {"Second": (0, 0, 120, 120), "First": (0, 0, 0, 0)}


@pytest.mark.parametrize("number", [-1, 2**64 - 1])
def test_nodes_without_a_sequence_number_map_to_no_operator(number: int, tmp_path: Path) -> None:
    writer = TraceWriter()
    module(writer, "Net_0", 0, 100)
    writer.host("operator", "aten::addmm", 10, 10, **sequence(number))
    backward(writer, number, 600, 2000, 60)
    code = of(writer, tmp_path)
    assert modules(code) == {"Net": (0, 0, 0, 0)}
    assert microseconds(code.unmapped_backward.device) == (0, 0, 60, 60)


def test_merged_ranks_may_share_sequence_numbers(tmp_path: Path) -> None:
    writer = TraceWriter()
    for rank in range(2):
        first = len(writer.events)
        writer.correlation = 100
        module(writer, f"Rank{rank}_0", 10 * rank, 100)
        writer.host("operator", "aten::addmm", 10 * rank + 5, 10, **sequence(5))
        backward(writer, 5, 600, 2000, 60 + rank)
        for event in writer.events[first:]:
            event["pid"] = rank if event["cat"] == "kernel" else 4000 + rank
            event["args"].pop("device", None)
    assert modules(of(writer, tmp_path)) == {"Rank1": (0, 0, 61, 61), "Rank0": (0, 0, 60, 60)}


def test_reused_sequence_numbers_match_the_latest_forward(tmp_path: Path) -> None:
    """Reuse numbers as a new thread does: each refers to the last forward before its backward."""
    writer = TraceWriter()
    module(writer, "First_0", 0, 30)
    writer.host("operator", "aten::addmm", 10, 10, **sequence(10))
    backward(writer, 10, 100, 2000, 100)
    module(writer, "Second_0", 200, 30)
    writer.host("operator", "aten::addmm", 210, 10, **sequence(10))
    backward(writer, 10, 300, 2200, 70)
    assert modules(of(writer, tmp_path)) == {"First": (0, 0, 100, 100), "Second": (0, 0, 70, 70)}


def test_recomputation_in_backward_counts_for_its_module(tmp_path: Path) -> None:
    """Run a module within backward, below the checkpoint's operator, as activation checkpointing does."""
    writer = TraceWriter()
    module(writer, "Net_0", 0, 100)
    writer.host("operator", "CheckpointFunction", 10, 20, **sequence(10))
    args = sequence(10, 1)
    writer.host("operator", "CheckpointFunctionBackward", 600, 200, thread=BACKWARD_THREAD, **args)
    module(writer, "Linear_0", 620, 100, thread=BACKWARD_THREAD)
    writer.host("operator", "aten::addmm", 630, 50, thread=BACKWARD_THREAD)
    writer.launch("gemm", 640, 2000, 80, thread=BACKWARD_THREAD)
    assert modules(of(writer, tmp_path)) == {"Net": (0, 0, 0, 80), "Net/Linear": (0, 0, 80, 80)}


def test_recomputation_within_the_backward_of_another_module(tmp_path: Path) -> None:
    """Non-reentrant checkpoints: the last layer's backward recomputes the tensors of all layers."""
    writer = TraceWriter()
    module(writer, "Net_0", 0, 200)
    for number in range(2):
        module(writer, f"Layer_{number}", 10 + 50 * number, 40)
        writer.host("operator", "aten::addmm", 15 + 50 * number, 20, **sequence(10 + number))
    writer.host("operator", "AddmmBackward0", 600, 300, thread=BACKWARD_THREAD, **sequence(11, 1))
    module(writer, "Layer_0", 620, 100, thread=BACKWARD_THREAD)
    writer.host("operator", "aten::addmm", 630, 50, thread=BACKWARD_THREAD)
    writer.launch("gemm", 640, 2000, 80, thread=BACKWARD_THREAD)
    writer.launch("gemm_backward", 800, 2100, 7, thread=BACKWARD_THREAD)
    code = of(writer, tmp_path, instances=True)
    assert modules(code) == {"Net_0": (0, 0, 0, 87), "Net_0/Layer_0": (0, 0, 80, 80), "Net_0/Layer_1": (0, 0, 7, 7)}


def test_a_module_that_is_used_in_two_places(tmp_path: Path) -> None:
    writer = TraceWriter()
    for number in range(2):
        module(writer, f"Block{number}_0", 100 * number, 90)
        module(writer, "Shared_0", 100 * number + 10, 50)
        writer.host("operator", "aten::mm", 100 * number + 20, 20)
        writer.launch("gemm", 100 * number + 25, 1000 + 100 * number, 30 + number)
    found = modules(of(writer, tmp_path))
    assert (found["Block0/Shared"], found["Block1/Shared"]) == ((30, 30, 0, 0), (31, 31, 0, 0))


def test_gradient_accumulation_by_old_versions_is_backward(tmp_path: Path) -> None:
    """Accumulate gradients outside of any engine operator, as old versions do."""
    writer = TraceWriter()
    two_layers(writer)
    backward(writer, 10, 600, 2000, 100)
    writer.host("operator", "aten::add_", 700, 20, thread=BACKWARD_THREAD)
    writer.launch("add", 705, 2400, 9, thread=BACKWARD_THREAD)
    code = of(writer, tmp_path)
    assert microseconds(code.unmapped_backward.device) == (0, 0, 9, 9)
    assert microseconds(code.outside_modules.device) == (0, 0, 9, 9)


def test_kernels_that_python_launches_without_an_operator(tmp_path: Path) -> None:
    writer = TraceWriter()
    module(writer, "Net_0", 0, 100)
    writer.launch("triton_poi_fused_add_0", 50, 200, 30)
    assert modules(of(writer, tmp_path)) == {"Net": (30, 30, 0, 0)}


def test_only_what_was_launched_within_the_steps_counts(tmp_path: Path) -> None:
    writer = TraceWriter()
    for number in (1, 2):
        writer.step(number, number * 10_000, 10_000)
    for begin in (0, 10_000, 20_000, 30_000):
        two_layers(writer, begin)
    code = of(writer, tmp_path)
    assert modules(code) == {"Net": (10, 250, 0, 0), "Net/Linear": (240, 240, 0, 0)}
    assert [(it.instances, it.calls) for it in code.modules] == [(1, 2), (2, 4)]
    assert (code.window_nanoseconds, code.device_window_nanoseconds) == (20_000_000, 20_000_000)


def test_a_function_that_calls_itself_counts_once(tmp_path: Path) -> None:
    writer = TraceWriter()
    for start, length in ((0, 100), (10, 80), (20, 60)):
        writer.host("python", "tree.py(3): walk", start, length)
    writer.host("operator", "aten::mm", 30, 20)
    writer.launch("gemm", 35, 200, 40)
    assert lines(of(writer, tmp_path)) == {"tree.py(3): walk": (40, 40, 0, 0)}


def test_recorded_call_stacks_name_the_exact_line(tmp_path: Path) -> None:
    writer = TraceWriter()
    stack = "torch/functional.py(12): f;model.py(77): forward;train.py(90): <module>"
    writer.host("operator", "aten::mm", 20, 10, **sequence(4), **{"Call stack": stack})
    writer.launch("gemm", 25, 200, 40)
    backward(writer, 4, 100, 300, 90)
    code = of(writer, tmp_path)
    assert code.exact_lines
    assert lines(code) == {"model.py(77): forward": (40, 40, 90, 90), "train.py(90): <module>": (0, 40, 0, 90)}


def test_operators_own_time_on_the_host(tmp_path: Path) -> None:
    writer = TraceWriter()
    module(writer, "Net_0", 0, 300)
    module(writer, "Linear_0", 10, 200)
    writer.host("operator", "aten::linear", 20, 100)
    writer.host("operator", "aten::addmm", 30, 80)
    writer.host("operator", "aten::relu", 250, 30)
    code = of(writer, tmp_path)
    found = {"/".join(it.path): microseconds(it.host) for it in code.modules}
    assert found == {"Net": (30, 130, 0, 0), "Net/Linear": (100, 100, 0, 0)}
    assert all(it.device == DirectedTime() for it in code.modules)


def test_a_trace_without_modules_and_lines_gives_nothing(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::mm", 0, 10)
    writer.host("python", "torch/nn/modules/linear.py(110): forward", 0, 10)
    timeline = read_trace(writer.write(tmp_path / "trace.json"), with_inputs=True)
    assert code_time(Attribution(timeline)) is None


def test_rows_are_bounded_and_keep_their_parents(tmp_path: Path) -> None:
    writer = TraceWriter()
    for number in range(200):
        begin = number * 100
        for depth, name in enumerate((f"Outer{number}_0", "Inner_0")):
            module(writer, name, begin + depth, 90 - 2 * depth)
        writer.host("operator", "aten::mm", begin + 10, 20)
        writer.launch("gemm", begin + 12, 100_000 + 1000 * number, 10 + number)
    code = of(writer, tmp_path, most=21)
    rows = code.modules
    assert (code.distinct_modules, len(rows)) == (400, 21)
    paths = {it.path for it in rows}
    assert len(paths) == 21
    assert all(len(it.path) == 1 or it.path[:-1] in paths for it in rows)
    assert rows[0].path == ("Outer199",)
    assert rows[1].path == ("Outer199", "Inner")


def test_deep_nesting_takes_bounded_time(tmp_path: Path) -> None:
    writer = TraceWriter()
    for depth in range(3000):
        module(writer, f"M{depth}_0", depth, 10_000 - 2 * depth)
    writer.host("operator", "aten::mm", 4000, 20)
    writer.launch("gemm", 4005, 100_000, 40)
    rows = of(writer, tmp_path, most=1000).modules
    assert max(len(it.path) for it in rows) == 64
    assert microseconds(rows[-1].device) == (40, 40, 0, 0)


# ---------------------------------------------------------------------------------------------
# Real traces, compared with a direct reading of the file
# ---------------------------------------------------------------------------------------------

real = pytest.mark.skipif(not REFERENCE.exists(), reason=f"the reference traces are not at {TRACES}")


def real_events(file: str) -> list[dict[str, Any]]:
    with gzip.open(TRACES / file) as opened:
        found: list[dict[str, Any]] = json.load(opened)["traceEvents"]
    return found


@real
def test_modules_of_a_real_trace() -> None:
    """Compare each module's kernels with a direct search of all of its calls for each launch."""
    file = "tracelens_h100_owlv2.json.gz"
    events = real_events(file)
    calls = {
        it["args"]["correlation"]: it for it in reversed(events) if it.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    attention = [it for it in events if it["name"].startswith("nn.Module: Owlv2Attention_")]
    linear = [it for it in events if it["name"].startswith("nn.Module: Linear_")]

    def within(launch: dict[str, Any], these: list[dict[str, Any]]) -> bool:
        return any(it["ts"] <= launch["ts"] < it["ts"] + it["dur"] and it["tid"] == launch["tid"] for it in these)

    total = own = 0.0
    for it in events:
        if it.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            launch = calls[it["args"]["correlation"]]
            if within(launch, attention):
                total += it["dur"]
                own += 0 if within(launch, linear) else it["dur"]
    code = code_time(Attribution(read_trace(TRACES / file, with_inputs=True)))
    assert code is not None
    rows = [it for it in code.modules if it.path[-1] == "Owlv2Attention"]
    assert sum(it.calls for it in rows) == len(attention)
    assert sum(it.instances for it in rows) == len({it["name"] for it in attention})
    assert sum(it.device.nanoseconds for it in rows) / 1000 == pytest.approx(total)
    assert sum(it.device.self_nanoseconds for it in rows) / 1000 == pytest.approx(own)


@real
@pytest.mark.parametrize("file", ["tracelens_h100_owlv2.json.gz", "kineto_v100_resnet50_nw0.pt.trace.json.gz"])
def test_no_device_time_is_lost(file: str) -> None:
    timeline = read_trace(TRACES / file, with_inputs=True)
    code = code_time(Attribution(timeline), most=10_000)
    assert code is not None
    first, last = timeline.steps[0].start, timeline.steps[-1].end
    device = timeline.device
    whole = sum(
        device.end[it] - device.start[it] for it, launched in enumerate(device.launched) if first <= launched < last
    )
    outermost = sum(it.device.nanoseconds for it in code.modules if len(it.path) == 1)
    assert outermost + code.outside_modules.device.nanoseconds == whole
    assert sum(it.device.self_nanoseconds for it in code.lines) + code.outside_lines.device.nanoseconds == whole


@real
def test_backward_of_a_real_trace_goes_to_the_line_of_forward() -> None:
    """Attribute backward work to line 46, the model's call, or line 47, the loss.

    Only operators of the backward thread that name their forward thread belong to one of the two lines.
    """
    file = "kineto_v100_resnet50_nw0.pt.trace.json.gz"
    events = real_events(file)
    thread = {it["tid"] for it in events if it["name"] == "CudnnConvolutionBackward"}
    spans: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    for it in events:
        if it.get("args", {}).get("Fwd thread id", 0) > 0:
            of_loss = it["name"] in ("NllLossBackward", "LogSoftmaxBackward")
            spans[of_loss].append((it["ts"], it["ts"] + it["dur"]))
    calls = {it["args"]["correlation"]: it for it in reversed(events) if it.get("cat") == "Runtime"}
    expected = {"model": 0, "loss": 0, "neither": 0}
    for it in events:
        call = calls[it["args"]["correlation"]] if it.get("cat") in ("Kernel", "Memcpy", "Memset") else None
        if call is not None and call["tid"] in thread:
            of_loss, of_model = (any(start <= call["ts"] < end for start, end in spans[key]) for key in (True, False))
            expected["loss" if of_loss else "model" if of_model else "neither"] += it["dur"]
    code = code_time(Attribution(read_trace(TRACES / file, with_inputs=True)))
    assert code is not None
    found = {it.place.split("(")[1][:2]: it.device.backward_nanoseconds / 1000 for it in code.lines}
    assert (found["46"], found["47"]) == (expected["model"], expected["loss"])
    assert code.unmapped_backward.device.backward_nanoseconds / 1000 == expected["neither"] > 0
