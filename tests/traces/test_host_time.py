"""Host time within the steps: parts that are disjoint and add up."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from trace_writer import LEGACY, MAIN_THREAD, TraceWriter, training_trace

from hotlap.traces import HostTime, host_time, read_trace

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def of(writer: TraceWriter, folder: Path) -> HostTime:
    found = host_time(read_trace(writer.write(folder / "trace.json")))
    assert found is not None
    return found


def microseconds(of: HostTime) -> tuple[float, ...]:
    parts = (of.loader_nanoseconds, of.sync_nanoseconds, of.operator_nanoseconds, of.python_nanoseconds)
    assert sum(parts) == of.step_nanoseconds
    return tuple(it / 1000 for it in parts)


def test_overlapping_time_counts_once(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 1000)
    writer.host("annotation", LOADER, 0, 300)
    writer.host("operator", "aten::stack", 50, 100)
    writer.host("operator", "aten::mm", 400, 100)
    writer.host("operator", "aten::item", 600, 200)
    writer.host("call", "cudaStreamSynchronize", 620, 150)
    writer.host("operator", "aten::after", 1000, 500)
    assert microseconds(of(writer, tmp_path)) == (300, 150, 100 + 50, 400)


def test_work_in_backward_threads_is_not_python(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 1000)
    writer.host("operator", "autograd::engine::evaluate_function: MmBackward0", 100, 300, thread=7)
    writer.host("operator", "aten::foreign", 500, 400, thread=8)
    assert microseconds(of(writer, tmp_path)) == (0, 0, 300, 700)


def test_operators_of_the_backward_pass_are_distinguished(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 1000)
    writer.host("operator", "aten::mm", 0, 100)
    writer.host("operator", "autograd::engine::evaluate_function: MmBackward0", 200, 300, thread=7)
    writer.host("operator", "aten::mm", 250, 100, thread=7)
    found = of(writer, tmp_path)
    assert (found.operator_nanoseconds, found.backward_nanoseconds) == (400_000, 300_000)


def test_the_engine_between_backward_operators_is_not_python(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 1000)
    for start in (0, 200, 600):
        writer.host("operator", "autograd::engine::evaluate_function: MmBackward0", start, 100)
    writer.host("operator", "aten::mm", 400, 100)
    found = of(writer, tmp_path)
    # The engine runs from 0 to 300; another operator runs between 300 and 600.
    assert (found.operator_nanoseconds, found.backward_nanoseconds) == (500_000, 400_000)


def test_a_thread_that_launches_kernels_counts(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 1000)
    writer.host("operator", "aten::mm", 100, 50, thread=7)
    writer.launch("kernel", 110, 200, 20, thread=7)
    assert microseconds(of(writer, tmp_path)) == (0, 0, 50, 950)


def test_annotations_of_old_versions_are_not_operators(tmp_path: Path) -> None:
    writer = TraceWriter(categories=LEGACY)
    writer.step(0, 0, 1000)
    writer.host("operator", "Optimizer.step#SGD.step", 700, 300)
    writer.host("operator", "aten::add_", 750, 50)
    assert microseconds(of(writer, tmp_path)) == (0, 0, 50, 950)


def test_a_trace_without_steps_gives_nothing(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::mm", 0, 10)
    assert host_time(read_trace(writer.write(tmp_path / "trace.json"))) is None


def test_a_training_loop(tmp_path: Path) -> None:
    loader, sync, operators, python = microseconds(of(training_trace(steps=4), tmp_path))
    # Per step: the upload's call of 5, and five operators of 9 next to each other with calls of 5 inside.
    assert (loader, sync, operators) == (4 * 300, 0, 4 * (5 + 5 * 9))
    assert python == 4 * (990 - 350)


spans = st.tuples(st.integers(0, 900), st.integers(0, 200), st.booleans())


@settings(max_examples=40, deadline=None)
@given(
    operators=st.lists(spans, max_size=6), waits=st.lists(spans, max_size=3), loaders=st.lists(spans, max_size=3)
)  # fmt: skip
def test_parts_match_set_arithmetic(
    operators: list[tuple[int, int, bool]],
    waits: list[tuple[int, int, bool]],
    loaders: list[tuple[int, int, bool]],
    tmp_path_factory: object,
) -> None:
    writer = TraceWriter()
    writer.step(0, 100, 300)
    writer.step(1, 500, 300)
    kinds = (
        ("operator", "aten::mm", operators),
        ("call", "cudaDeviceSynchronize", waits),
        ("annotation", LOADER, loaders),
    )
    for kind, name, these in kinds:
        for start, length, main in these:
            writer.host(kind, name, start, length, thread=MAIN_THREAD if main else 1)

    def moments(these: list[tuple[int, int, bool]]) -> set[int]:
        return {moment for start, length, main in these if main for moment in range(start, start + length)}

    steps = set(range(100, 400)) | set(range(500, 800))
    loader = steps & moments(loaders)
    sync = (steps - loader) & moments(waits)
    operator = (steps - loader - sync) & moments(operators)
    folder: Path = tmp_path_factory.mktemp("host")  # type: ignore[attr-defined]
    assert microseconds(of(writer, folder)) == (
        len(loader), len(sync), len(operator), len(steps - loader - sync - operator)
    )  # fmt: skip
