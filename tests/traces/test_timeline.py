"""Queries of a timeline, compared with a search of every event, and its bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trace_writer import TraceWriter, kineto_text, training_trace

from hotlap.diagnose.operators import is_product
from hotlap.traces import read_trace
from hotlap.traces.inputs import pair_of_inputs, shapes_and_types
from hotlap.traces.numbering import LONGEST_NAME, LONGEST_TEXT, TOO_MANY_NAMES, Names, Texts, Threads
from hotlap.traces.operators import operators
from hotlap.traces.timeline import NONE, HostEvents

events = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 300), st.integers(0, 1)), max_size=300)


def host(these: list[tuple[int, int, int]]) -> HostEvents:
    found = HostEvents()
    for start, length, thread in sorted(these):
        found.start.append(start)
        found.end.append(start + length)
        found.thread.append(thread)
    return found


@given(events, st.integers(-10, 900), st.integers(0, 1))
def test_events_that_enclose_a_time(these: list[tuple[int, int, int]], moment: int, thread: int) -> None:
    table = host(these)
    found = table.around(moment, thread)
    spans = [(table.start[it], -table.end[it], it) for it in found]
    assert spans == sorted(spans)
    assert set(found) == {
        it for it in range(len(table)) if table.start[it] <= moment <= table.end[it] and table.thread[it] == thread
    }


@given(events, st.integers(-10, 900), st.integers(0, 200))
def test_events_within_a_window(these: list[tuple[int, int, int]], start: int, length: int) -> None:
    table = host(these)
    end = start + length
    expected = [it for it in range(len(table)) if table.start[it] < end and table.end[it] > start]
    assert list(table.overlapping(start, end)) == expected[::-1]


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names()
    assert names["a"] == names["a"] == 0
    assert names["b" * (LONGEST_NAME + 5)] == names["b" * LONGEST_NAME] == 1
    monkeypatch.setattr("hotlap.traces.numbering.MOST_TEXT", 10_000)
    found = {names[f"{index} {'c' * 4000}"] for index in range(1000)}
    assert len(names) < 6
    assert names[TOO_MANY_NAMES] in found
    assert names["a"] == 0


def test_texts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = Texts()
    assert (texts[b"a"], texts[b"b"], texts[b"a"], texts[b""]) == (0, 1, 0, NONE)
    assert texts[b"c" * (LONGEST_TEXT + 1)] == NONE
    monkeypatch.setattr("hotlap.traces.numbering.MOST_TEXT", 10_000)
    found = [texts[b"%d" % index + b"d" * 5000] for index in range(100)]
    assert found[0] == 2
    assert found[-1] == NONE
    assert len(texts) < 6


def test_threads_are_distinguished_by_process_and_cut() -> None:
    threads = Threads()
    one, other = threads.of_process(1), threads.of_process(2)
    assert [one[7], one["7"], other[7], threads.of_process("1")[7]] == [0, 0, 1, 0]
    assert one["x" * 5000] == one["x" * 6000]
    assert max(len(thread) for _, thread in threads) <= 100
    assert max(len(str(it)) for it in one) <= 100


@given(st.lists(st.lists(st.integers(0, 2**40), max_size=4), max_size=5), st.lists(st.text(max_size=9), max_size=5))
def test_inputs_come_back_as_they_were_written(shapes: list[list[int]], types: list[str]) -> None:
    pair = pair_of_inputs(*(msgspec.Raw(msgspec.json.encode(it)) for it in (shapes, types)))
    count = max(len(shapes), len(types))
    expected = [tuple(it) for it in shapes] + [()] * (count - len(shapes))
    assert shapes_and_types(pair) == (tuple(expected), tuple(types + [""] * (count - len(types))))


@pytest.mark.parametrize(
    ("strides", "expected"),
    [
        ([[], [3, 1], []], ("sparse float", "float", "Scalar")),
        ([[1, 2], [3, 1], []], ("float", "float", "Scalar")),
        ("none", ("float", "float", "Scalar")),
    ],
)
def test_an_input_with_sizes_and_no_strides_is_sparse(strides: object, expected: tuple[str, ...]) -> None:
    shapes, types = [[2, 3], [3, 4], []], ["float", "float", "Scalar"]
    pair = pair_of_inputs(*(msgspec.Raw(msgspec.json.encode(it)) for it in (shapes, types, strides)))
    assert shapes_and_types(pair) == (((2, 3), (3, 4), ()), expected)


@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse_coo, torch.Tensor.to_sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_product_is_no_product_of_dense_matrices(
    convert: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path
) -> None:
    adjacency, features = convert(torch.eye(64)), torch.ones(64, 8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        torch.sparse.mm(adjacency, features)
        torch.mm(features.T, features)
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    products = [it for it in operators(read_trace(path, with_inputs=True)) if is_product(it)]
    assert {it.shapes[:2] for it in products} == {((8, 64), (64, 8))}


def test_categories_are_bounded(tmp_path: Path) -> None:
    writer = training_trace()
    odd = [{**writer.events[0], "cat": f"{index} {'x' * 300}"} for index in range(3000)]
    path = tmp_path / "trace.json"
    path.write_bytes(kineto_text([*writer.events, *odd]))
    seen = read_trace(path).coverage
    assert seen.other_events == 3000
    assert len(seen.other) == 20
    assert all(len(category) <= 200 for category, _ in seen.other)
    assert dict(seen.other)["other categories"] == 2000


def test_marks_are_counted(tmp_path: Path) -> None:
    writer = training_trace()
    writer.events += [{"ph": "s", "cat": "ac2g", "id": 1}] * 3 + [{"ph": "M", "name": "process_name"}] * 2
    seen = read_trace(writer.write(tmp_path / "trace.json")).coverage
    assert dict(seen.other) == {"arrows, instants, counters and names": 5}
    assert seen.other_events == 5


def test_only_useful_python_functions_are_kept_but_all_counted(tmp_path: Path) -> None:
    writer = TraceWriter()
    loader = "torch/utils/data/dataloader.py(708): __next__"
    kept = ["train.py(3): main", loader, "torch/_inductor/compile_fx.py(5): compile_fx"]
    for index, name in enumerate([*kept, "<built-in function len>", "torch/nn/modules/linear.py(3): forward"]):
        writer.host("python", name, index, 10)
    line = read_trace(writer.write(tmp_path / "trace.json"))
    assert line.frames.names == kept
    assert line.coverage.host_events == 5
