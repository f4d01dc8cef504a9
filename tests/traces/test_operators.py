"""Operators by name, inputs and place: own host time, and the kernels that each launched directly."""

from __future__ import annotations

from pathlib import Path

import pytest
from trace_writer import TraceWriter, kineto_text, training_trace, write_text

from hotlap.errors import TraceError
from hotlap.traces import OperatorRow, operators, read_trace


def table(writer: TraceWriter, folder: Path) -> dict[str, OperatorRow]:
    rows = operators(read_trace(writer.write(folder / "trace.json")))
    found = {it.name: it for it in rows}
    assert len(found) == len(rows)
    return found


def test_own_time_excludes_called_operators(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::linear", 0, 100)
    writer.host("operator", "aten::t", 5, 10)
    writer.host("operator", "aten::transpose", 6, 4)
    writer.host("operator", "aten::addmm", 20, 70)
    writer.host("operator", "aten::relu", 100, 30)
    writer.host("operator", "aten::relu", 10, 500, thread=9)
    rows = table(writer, tmp_path)
    own = {name: it.host_nanoseconds / 1000 for name, it in rows.items()}
    assert own == {"aten::linear": 20, "aten::t": 6, "aten::transpose": 4, "aten::addmm": 70, "aten::relu": 530}
    assert rows["aten::relu"].calls == 2


def test_kernels_belong_to_the_innermost_launching_operator(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::linear", 0, 100)
    writer.host("operator", "aten::addmm", 10, 50)
    writer.launch("gemm", 20, 300, 40)
    writer.launch("splitk", 30, 350, 5)
    writer.launch("bias", 70, 400, 7)
    writer.launch("outside", 150, 500, 11)
    writer.launch("elsewhere", 40, 600, 13, thread=5)
    rows = table(writer, tmp_path)
    assert {name: it.device_nanoseconds for name, it in rows.items()} == {"aten::linear": 7000, "aten::addmm": 45_000}


def test_all_kernels_of_a_graph_belong_to_its_launch(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "replay", 0, 100)
    writer.launch("first", 10, 20, 50, call="GraphLaunch")
    writer.device("kernel", "second", 75, 50, correlation=writer.correlation)
    assert table(writer, tmp_path)["replay"].device_nanoseconds == 100_000


def test_a_kernel_without_launch_names_its_operator(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::mm", 0, 100, **{"External id": 17})
    writer.device("kernel", "gemm", 200, 30, **{"External id": 17})
    writer.device("kernel", "stray", 250, 30, **{"External id": 18})
    assert table(writer, tmp_path)["aten::mm"].device_nanoseconds == 30_000


def test_inputs_and_places_distinguish_operators(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("python", "train.py(9): main", 0, 1000)
    writer.host("python", "model.py(20): forward", 100, 300)
    writer.host("python", "torch/nn/modules/linear.py(110): forward", 110, 280)
    small = {"Input Dims": [[8, 16], [16, 4], []], "Input type": ["float", "float", "Scalar"]}
    large = {"Input Dims": [[64, 16], [16, 4], []], "Input type": ["float", "float", "Scalar"]}
    writer.host("operator", "aten::mm", 120, 10, **small)
    writer.host("operator", "aten::mm", 140, 10, **small)
    writer.host("operator", "aten::mm", 160, 30, **large)
    writer.host("operator", "aten::mm", 500, 50, **small)
    rows = operators(read_trace(writer.write(tmp_path / "trace.json")))
    assert [(it.shapes[0], it.calls, it.host_nanoseconds, it.place) for it in rows] == [
        ((8, 16), 1, 50_000, "train.py(9): main"),
        ((64, 16), 1, 30_000, "model.py(20): forward"),
        ((8, 16), 2, 20_000, "model.py(20): forward"),
    ]
    assert {it.types for it in rows} == {("float", "float", "Scalar")}


def test_the_place_in_a_recorded_call_stack(tmp_path: Path) -> None:
    writer = TraceWriter()
    stack = "torch/functional.py(12): f;model.py(77): forward;train.py(90): <module>"
    writer.host("operator", "aten::mm", 20, 110, **{"Call stack": stack})
    writer.host("operator", "aten::relu", 200, 10, **{"Call stack": "torch/functional.py(12): f"})
    rows = table(writer, tmp_path)
    assert (rows["aten::mm"].place, rows["aten::relu"].place) == ("model.py(77): forward", "")


def test_only_what_began_within_the_steps_counts(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(3, 100, 100)
    writer.step(4, 200, 100)
    for start in (50, 150, 250, 350):
        writer.host("operator", "aten::mm", start, 10)
    row = table(writer, tmp_path)["aten::mm"]
    assert (row.calls, row.host_nanoseconds) == (2, 20_000)


def test_the_number_of_steps_that_call_an_operator(tmp_path: Path) -> None:
    """Call an operator in only one step, in an evaluation between two steps."""
    writer = TraceWriter()
    for number in range(4):
        writer.step(number, 100 * number, 100)
        writer.host("operator", "aten::mm", 100 * number + 10, 10)
    for start in range(220, 280, 5):
        writer.host("operator", "aten::stack", start, 2)
    rows = table(writer, tmp_path)
    assert (rows["aten::mm"].calls, rows["aten::mm"].steps) == (4, 4)
    assert (rows["aten::stack"].calls, rows["aten::stack"].steps) == (12, 1)


def test_a_trace_of_the_cpu_alone(tmp_path: Path) -> None:
    writer = TraceWriter()
    for number in range(3):
        writer.step(number, number * 100, 100)
        writer.host("operator", "aten::convolution", number * 100, 70)
        writer.host("operator", "aten::mkldnn_convolution", number * 100 + 10, 50)
    rows = table(writer, tmp_path)
    assert list(rows) == ["aten::mkldnn_convolution", "aten::convolution"]
    assert rows["aten::mkldnn_convolution"].host_nanoseconds == 150_000
    assert rows["aten::convolution"].device_nanoseconds == 0


@pytest.mark.parametrize(
    ("dims", "types", "shapes", "expected"),
    [
        ([[[2, 3], [4, 3]], [7]], ["TensorList", "float"], ((), (7,)), ("TensorList", "float")),
        ([[1], [2]], ["float"], ((1,), (2,)), ("float", "")),
        ([["a"], {"b": 1}, 5, None, [1.5], [True]], [1, None], ((),) * 6, ("",) * 6),
        ("nothing", {"no": "list"}, (), ()),
        ([[1]] * 500, ["float"] * 500, ((1,),) * 64, ("float",) * 64),
        ([[10**40]], ["x" * 5000], ((10**40,),), ("x" * 200,)),
    ],
)
def test_inputs_of_any_shape(dims: object, types: object, shapes: object, expected: object, tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::cat", 0, 10, **{"Input Dims": dims, "Input type": types})
    row = table(writer, tmp_path)["aten::cat"]
    assert (row.shapes, row.types) == (shapes, expected)


def test_operators_that_overlap_without_enclosing_one_another(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "one", 0, 100)
    writer.host("operator", "other", 60, 100)
    rows = table(writer, tmp_path)
    assert (rows["one"].host_nanoseconds, rows["other"].host_nanoseconds) == (60_000, 100_000)


def test_rows_are_bounded_and_the_longest_come_first(tmp_path: Path) -> None:
    writer = TraceWriter()
    for index in range(20):
        writer.host("operator", f"aten::op{index}", index * 100, 10 + index)
    writer.launch("kernel", 305, 400, 5)
    rows = operators(read_trace(writer.write(tmp_path / "trace.json")), most=3)
    assert [it.name for it in rows] == ["aten::op3", "aten::op19", "aten::op18"]


def test_a_trace_is_read_once_if_inputs_were_requested(tmp_path: Path) -> None:
    path = training_trace().write(tmp_path / "trace.json")
    plain, full = read_trace(path), read_trace(path, with_inputs=True)
    expected = operators(plain)
    path.unlink()
    assert operators(full) == expected
    with pytest.raises(TraceError, match="cannot be opened"):
        operators(plain)


def test_unusual_identifiers_do_not_break_a_detailed_reading(tmp_path: Path) -> None:
    writer = training_trace()
    for number, event in enumerate(writer.events):
        event["args"]["External id"] = ["text", None, 1.5, {}][number % 4]
    line = read_trace(write_text(tmp_path / "trace.json", kineto_text(writer.events)), with_inputs=True)
    assert line.coverage.events == len(writer.events)
    assert {it.name for it in operators(line)} == {"aten::mm"}
