"""Replayed graphs: their launches, and the operators of their kernels. Times are microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trace_writer import TraceWriter, training_trace

from hotlap.cli.main import main
from hotlap.traces import Attribution, graph_rows, read_trace
from hotlap.traces.graph_records import GraphRow

Kernels = tuple[tuple[str, float], ...]
LAYER: Kernels = (("gemm", 50), ("relu", 10), ("gemm", 50))


def of(writer: TraceWriter, folder: Path, **options: int) -> tuple[GraphRow, ...]:
    timeline = read_trace(writer.write(folder / "trace.json"), with_inputs=True)
    return graph_rows(Attribution(timeline), **options)


def replay(
    writer: TraceWriter, launched: float, kernels: Kernels = LAYER, *, graph: int | None = 5, kind: str = "kernel",
    streams: tuple[int, ...] = (7,),
) -> None:  # fmt: skip
    """Write one launch, followed later by all of its kernels."""
    writer.correlation += 1
    writer.host("call", "cudaGraphLaunch", launched, 5, correlation=writer.correlation)
    start = launched + 100
    for position, (name, length) in enumerate(kernels):
        args: dict[str, Any] = {} if graph is None else {"graph id": graph, "graph node id": graph * 100 + position}
        stream = streams[position % len(streams)]
        writer.device(kind, name, start, length, stream=stream, correlation=writer.correlation, **args)
        start += length


def capture(writer: TraceWriter, start: float, operators: tuple[tuple[str, str], ...]) -> None:
    """Write a capture of these operators, each with the call that added its node."""
    writer.host("call", "cudaStreamBeginCapture", start, 2)
    for position, (operator, call) in enumerate(operators):
        at = start + 10 + 20 * position
        writer.host("operator", operator, at, 15)
        writer.correlation += 1
        writer.host("call", call, at + 5, 5, correlation=writer.correlation)
    writer.host("call", "cudaStreamEndCapture", start + 10 + 20 * len(operators), 2)


MATCHING = (("aten::addmm", "cudaLaunchKernel"), ("aten::relu", "cudaLaunchKernel"), ("aten::mm", "cuLaunchKernel"))


def origins(row: GraphRow) -> dict[str, tuple[tuple[str, ...], str]]:
    return {it.name: (it.operators, it.known_by) for it in row.kernels}


def test_what_launched_a_graph(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("python", "train.py(5): step", 0, 2000)
    writer.host("python", "nn.Module: Net_0", 10, 1500)
    writer.host("python", "nn.Module: Encoder_1", 20, 1000)
    for begin in (100, 600):
        writer.host("operator", "CompiledFunction", begin, 50)
        replay(writer, begin + 10)
    replay(writer, 1600, (("copy_kernel", 3),), graph=9)
    encoder, other = of(writer, tmp_path)
    assert (encoder.graph, encoder.operator, encoder.place) == (5, "CompiledFunction", "train.py(5): step")
    assert encoder.module == ("Net_0", "Encoder_1")
    assert (encoder.replays, encoder.launches, encoder.nanoseconds) == (2, 6, 220_000)
    assert [(it.name, it.launches, it.nanoseconds) for it in encoder.kernels] == [
        ("gemm", 4, 200_000),
        ("relu", 2, 20_000),
    ]
    assert (other.graph, other.operator, other.module, other.place) == (9, "", (), "train.py(5): step")
    assert (other.replays, other.launches, other.nanoseconds) == (1, 1, 3000)


def test_operators_are_unknown_unless_the_trace_shows_them(tmp_path: Path) -> None:
    writer = TraceWriter()
    replay(writer, 100)
    (row,) = of(writer, tmp_path)
    assert origins(row) == {"gemm": ((), ""), "relu": ((), "")}
    assert row.known_nanoseconds == 0


def test_eager_launches_of_the_same_kernel(tmp_path: Path) -> None:
    writer = TraceWriter()
    for number, operator in enumerate(("aten::mm", "aten::addmm", "aten::mm")):
        writer.host("operator", operator, number * 30, 20)
        writer.launch("gemm", number * 30 + 5, 200 + 60 * number, 50)
    replay(writer, 500)
    (row,) = of(writer, tmp_path)
    assert origins(row) == {"gemm": (("aten::addmm", "aten::mm"), "eager"), "relu": ((), "")}
    assert row.known_nanoseconds == 100_000


def test_a_kernel_of_several_operators_has_no_operator(tmp_path: Path) -> None:
    writer = TraceWriter()
    for number in range(5):
        writer.host("operator", f"aten::op{number}", number * 30, 20)
        writer.launch("gemm", number * 30 + 5, 200 + 60 * number, 50)
    replay(writer, 700)
    assert origins(of(writer, tmp_path)[0])["gemm"] == ((), "")


def test_copies_of_the_same_name_have_no_operator(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::copy_", 0, 20)
    writer.launch("Memcpy DtoD (Device -> Device)", 5, 50, 10, kind="copy", call="MemcpyAsync")
    replay(writer, 100, (("Memcpy DtoD (Device -> Device)", 7),), kind="copy")
    assert origins(of(writer, tmp_path)[0]) == {"Memcpy DtoD (Device -> Device)": ((), "")}


def test_a_compiler_names_kernels_after_operators(tmp_path: Path) -> None:
    writer = TraceWriter()
    replay(writer, 100, (("triton_poi_fused_add_relu_3", 7), ("triton_", 2), ("triton_red_fused_sum", 3)))
    assert origins(of(writer, tmp_path)[0]) == {
        "triton_poi_fused_add_relu_3": (("add_relu",), "name"),
        "triton_": ((), ""),
        "triton_red_fused_sum": (("sum",), "name"),
    }


def test_the_capture_of_the_graph_names_every_node(tmp_path: Path) -> None:
    writer = TraceWriter()
    capture(writer, 0, MATCHING)
    replay(writer, 500)
    replay(writer, 1500)
    (row,) = of(writer, tmp_path)
    assert {(it.name, it.operators, it.known_by, it.launches) for it in row.kernels} == {
        ("gemm", ("aten::addmm",), "capture", 2),
        ("relu", ("aten::relu",), "capture", 2),
        ("gemm", ("aten::mm",), "capture", 2),
    }
    assert row.known_nanoseconds == row.nanoseconds


def unknown(writer: TraceWriter, folder: Path) -> bool:
    return all(it.known_by != "capture" for row in of(writer, folder) for it in row.kernels)


@pytest.mark.parametrize(
    "operators",
    [
        MATCHING[:2],
        (*MATCHING, ("aten::add", "cudaLaunchKernel")),
        (*MATCHING[:2], ("aten::copy_", "cudaMemcpyAsync")),
    ],
    ids=["fewer", "more", "another kind"],
)
def test_a_capture_with_other_nodes_is_another_graph(operators: tuple[tuple[str, str], ...], tmp_path: Path) -> None:
    writer = TraceWriter()
    capture(writer, 0, operators)
    replay(writer, 500)
    assert unknown(writer, tmp_path)


def test_a_capture_after_the_first_replay_is_another_graph(tmp_path: Path) -> None:
    writer = TraceWriter()
    replay(writer, 0)
    capture(writer, 500, MATCHING)
    replay(writer, 1500)
    assert unknown(writer, tmp_path)


def test_a_capture_that_contradicts_eager_launches_is_not_used(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::gelu", 0, 20)
    writer.launch("relu", 5, 30, 10)
    capture(writer, 100, MATCHING)
    replay(writer, 500)
    assert unknown(writer, tmp_path)


def test_two_matching_captures_are_ambiguous(tmp_path: Path) -> None:
    writer = TraceWriter()
    capture(writer, 0, MATCHING)
    capture(writer, 200, (("aten::bmm", "cudaLaunchKernel"), *MATCHING[1:]))
    replay(writer, 500)
    assert unknown(writer, tmp_path)


def test_concurrent_captures_are_ambiguous(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("call", "cudaStreamBeginCapture", 0, 500, thread=9)
    capture(writer, 5, MATCHING)
    writer.host("call", "cudaStreamEndCapture", 400, 2, thread=9)
    replay(writer, 600)
    assert unknown(writer, tmp_path)


def test_branches_may_run_in_another_order_than_captured(tmp_path: Path) -> None:
    writer = TraceWriter()
    capture(writer, 0, MATCHING)
    replay(writer, 500, streams=(7, 8))
    assert unknown(writer, tmp_path)


def test_work_that_ran_during_a_capture_is_not_a_node(tmp_path: Path) -> None:
    writer = TraceWriter()
    capture(writer, 0, MATCHING)
    writer.launch("elsewhere", 30, 60, 10, thread=9, stream=20)
    replay(writer, 500)
    assert not unknown(writer, tmp_path)


def test_only_replays_within_the_steps_count(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(1, 1000, 1000)
    for begin in (0, 1200, 2500):
        replay(writer, begin)
    (row,) = of(writer, tmp_path)
    assert (row.replays, row.nanoseconds) == (1, 110_000)


def test_old_traces_have_no_numbers_of_graphs(tmp_path: Path) -> None:
    writer = TraceWriter()
    capture(writer, 0, MATCHING)
    for begin in (500, 1000):
        replay(writer, begin, graph=None)
    (row,) = of(writer, tmp_path)
    assert (row.graph, row.replays, row.launches) == (None, 2, 6)
    assert unknown(writer, tmp_path)


def test_kernels_are_bounded(tmp_path: Path) -> None:
    writer = TraceWriter()
    replay(writer, 0, tuple((f"kernel{number}", 1 + number) for number in range(30)))
    (row,) = of(writer, tmp_path, most=4)
    assert [it.name for it in row.kernels] == ["kernel29", "kernel28", "kernel27", "kernel26"]
    assert row.distinct_kernels == 30
    assert (row.launches, row.nanoseconds) == (30, sum(range(1, 31)) * 1000)


def test_unrecorded_replays_and_traces_without_graphs(tmp_path: Path) -> None:
    assert of(training_trace(), tmp_path) == ()
    writer = training_trace()
    writer.host("call", "cudaGraphLaunch", 900, 10, correlation=9_000)
    assert of(writer, tmp_path) == ()


# ---------------------------------------------------------------------------------------------
# The page and the document
# ---------------------------------------------------------------------------------------------


def page(writer: TraceWriter, folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["trace", "--full", *options, str(writer.write(folder / "trace.json"))]) == 0
    return capsys.readouterr().out


def test_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    writer = TraceWriter()
    writer.host("operator", "aten::mm", 0, 20)
    writer.launch("gemm", 5, 100, 50)
    writer.host("operator", "CompiledFunction", 490, 50)
    replay(writer, 500)
    writer.host("python", "train.py(5): step", 900, 200)
    replay(writer, 1000, LAYER[:1])
    shown = page(writer, tmp_path, capsys)
    assert shown.count("Kernels of graph 5") == 1
    lines = [it.split() for it in shown[shown.index("Replayed graphs") :].splitlines()]
    assert lines[2] == ["graph", "5", "CompiledFunction", "1", "3", "110", "us", "110", "us"]
    assert lines[3] == ["graph", "5", "Python", "at", "train.py(5):", "step", "1", "1", "50.0", "us", "50.0", "us"]
    assert lines[5] == ["Kernels", "of", "graph", "5,", "launched", "by", "CompiledFunction"]
    assert " ".join(lines[6]) == (
        "the operators of 10.0 us are unknown: neither captured nor launched eagerly in this trace"
    )
    assert lines[8] == ["gemm", "100", "us", "91", "%", "2", "aten::mm", "eager", "launches", "of", "the", "kernel"]
    assert lines[9] == ["relu", "10.0", "us", "9.1", "%", "1"]


def test_the_page_reports_that_no_operator_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    replay(writer, 0)
    shown = " ".join(page(writer, tmp_path, capsys).split())
    assert "their operators are unknown: the trace has neither the capture of the graph nor eager launches" in shown
    assert "known by" not in shown


def test_the_page_of_a_trace_without_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Replayed graphs" not in page(training_trace(), tmp_path, capsys)


def test_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    capture(writer, 0, MATCHING)
    replay(writer, 500)
    (graph,) = json.loads(page(writer, tmp_path, capsys, "--json"))["traces"][0]["graphs"]
    assert (graph["graph"], graph["replays"], graph["known_seconds"]) == (5, 1, pytest.approx(110e-6))
    assert {it["known_by"] for it in graph["kernels"]} == {"capture"}
