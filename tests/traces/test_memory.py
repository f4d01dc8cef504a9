"""Memory over time: the peak and its allocations, steps, growth, the chart."""

from __future__ import annotations

from pathlib import Path

import pytest
from trace_writer import TraceWriter

from hotlap.render.area_chart import area_chart
from hotlap.render.lines import Paper
from hotlap.render.trace_memory import memory_lines
from hotlap.traces import MemoryOverTime, read_trace
from hotlap.traces.memory import memory_use

MIB = 2**20
ENGINE_THREAD = 77


def used(writer: TraceWriter, folder: Path) -> tuple[MemoryOverTime, ...]:
    return memory_use(read_trace(writer.write(folder / "trace.json"), with_inputs=True))


def one(writer: TraceWriter, folder: Path) -> MemoryOverTime:
    (found,) = used(writer, folder)
    return found


def page(*uses: MemoryOverTime, ascii_only: bool = False) -> str:
    return "\n".join(memory_lines(uses, Paper(width=120, ascii_only=ascii_only)))


def training() -> TraceWriter:
    """Write two steps on top of 100 MiB: forward allocates 8 and 4, backward 16 and frees 8, the optimizer keeps 2."""
    writer = TraceWriter()
    for begin in writer.steps(2, 1000):
        kept = 100 + 2 * (begin // 1000)
        writer.host("python", "train.py(12): forward", begin + 10, 200)
        writer.host("python", "nn.Module: Linear_0", begin + 15, 60)
        writer.host("operator", "aten::linear", begin + 20, 50)
        writer.host("operator", "aten::addmm", begin + 30, 30)
        writer.memory(begin + 40, 8 * MIB, (kept + 8) * MIB, reserved=200 * MIB, address=1)
        writer.host("operator", "aten::relu", begin + 80, 20)
        writer.memory(begin + 90, 4 * MIB, (kept + 12) * MIB, reserved=200 * MIB, address=2)
        engine = "autograd::engine::evaluate_function: AddmmBackward0"
        writer.host("operator", engine, begin + 300, 100, thread=ENGINE_THREAD)
        writer.memory(begin + 310, 16 * MIB, (kept + 28) * MIB, reserved=220 * MIB, address=3, thread=ENGINE_THREAD)
        writer.memory(begin + 350, -8 * MIB, (kept + 20) * MIB, reserved=220 * MIB, address=1, thread=ENGINE_THREAD)
        writer.host("annotation", "Optimizer.step#Adam.step", begin + 500, 100)
        writer.host("operator", "aten::zeros_like", begin + 510, 20)
        writer.memory(begin + 520, 2 * MIB, (kept + 22) * MIB, reserved=220 * MIB, address=10 + begin)
        for address, size in ((2, 4), (3, 16)):
            left = kept + 22 - 4 - (16 if address == 3 else 0)
            writer.memory(begin + 600 + address, -size * MIB, left * MIB, reserved=220 * MIB, address=address)
    return writer


def test_the_peak_and_its_time(tmp_path: Path) -> None:
    peak = one(training(), tmp_path).peak
    assert peak.allocated_bytes == 130 * MIB
    assert peak.reserved_bytes == 220 * MIB
    assert (peak.start_nanoseconds, peak.step, peak.phase) == (1_310_000, 1, "backward")
    assert peak.operator == "autograd::engine::evaluate_function: AddmmBackward0"


def test_allocations_in_use_at_the_peak(tmp_path: Path) -> None:
    use = one(training(), tmp_path)
    assert use.held_before_bytes == 100 * MIB
    assert [(it.operator, it.phase, it.bytes // MIB, it.module, it.place) for it in use.holders] == [
        ("autograd::engine::evaluate_function: AddmmBackward0", "backward", 16, "", ""),
        ("aten::linear", "forward", 8, "Linear_0", "train.py(12): forward"),
        ("aten::relu", "forward", 4, "", "train.py(12): forward"),
        ("aten::zeros_like", "optimizer", 2, "", ""),
    ]
    assert use.held_before_bytes + sum(it.bytes for it in use.holders) == use.peak.allocated_bytes


def test_steps_and_growth(tmp_path: Path) -> None:
    use = one(training(), tmp_path)
    assert [(it.number, it.peak_bytes // MIB, it.end_bytes // MIB) for it in use.steps] == [
        (0, 128, 102),
        (1, 130, 104),
    ]
    assert use.growth_bytes_per_step is None  # of two steps there is one difference
    assert use.changes == 14
    assert use.peak_reserved_bytes == 220 * MIB


@pytest.mark.parametrize(("left", "growth", "always"), [((3, 3, 3, 3), 3, True), ((5, 0, 0, 0), 0, False)])
def test_growth_is_the_median_of_at_least_two_differences(
    tmp_path: Path, left: tuple[int, ...], growth: int, always: bool
) -> None:
    writer, level = TraceWriter(), 10
    for begin, more in zip(writer.steps(4, 1000), left, strict=True):
        level += more
        writer.memory(begin + 100, more, level)
        writer.memory(begin + 200, 50, level + 50)
        writer.memory(begin + 300, -50, level)
    use = one(writer, tmp_path)
    assert (use.growth_bytes_per_step, use.grows_every_step) == (growth, always)
    assert ("3 B per step" in page(use)) == always
    assert ("No growth: every step ended with 15 B." in page(use)) != always


def test_a_step_without_changes_keeps_its_memory(tmp_path: Path) -> None:
    writer = TraceWriter()
    list(writer.steps(3, 1000))
    writer.memory(1500, 20, 120)
    steps = one(writer, tmp_path).steps
    assert "No steady growth" in page(one(writer, tmp_path))
    assert [(it.peak_bytes, it.end_bytes) for it in steps] == [(100, 100), (120, 120), (120, 120)]


def test_legacy_traces_count_from_their_beginning(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "CudnnConvolutionBackward", 0, 500)
    for moment, change in ((10, 64), (20, 32), (30, -64)):
        writer.memory(moment, change)
    use = one(writer, tmp_path)
    assert (use.absolute, use.peak.allocated_bytes, use.peak.phase) == (False, 96, "backward")
    assert (use.peak.reserved_bytes, use.held_before_bytes, use.holders) == (None, None, ())
    assert "96 B allocated since the trace began in backward" in page(use)


def test_a_legacy_trace_that_only_frees_has_no_peak(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::mm", 0, 100)
    for moment in (10, 20):
        writer.memory(moment, -MIB)
    assert used(writer, tmp_path) == ()


def test_the_host_only_where_no_accelerator_reports(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::empty", 0, 50)
    writer.memory(10, 64, 64, device=-1, device_type=0)
    host = one(writer, tmp_path)
    assert host.on_host
    assert "Memory of the host" in page(host)
    writer.memory(20, 32, 32, device=1)
    writer.memory(25, 99, 99, device=0)
    assert [(it.device, it.on_host, it.peak.allocated_bytes) for it in used(writer, tmp_path)] == [
        (0, False, 99),
        (1, False, 32),
    ]


def test_chart_samples_are_maxima(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::empty", 0, 50)
    writer.memory(0, 10, 10)
    writer.memory(503, 90, 100)
    writer.memory(504, -90, 10)
    writer.memory(1200, 5, 15)
    samples = one(writer, tmp_path).samples
    assert len(samples) == 120
    assert max(samples) == 100
    assert samples.count(100) == 1
    assert set(samples) == {10, 15, 100}


def test_a_trace_without_memory(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::empty", 0, 50)
    assert used(writer, tmp_path) == ()
    assert page() == ""


def test_the_page(tmp_path: Path) -> None:
    text = page(one(training(), tmp_path))
    assert "Peak: 130 MiB allocated (up to 220 MiB reserved) in step 1, backward, autograd::engine" in text
    assert "allocated before the trace began" in text
    assert "train.py(12): forward" in text
    assert "Linear_0" in text
    assert "\u2588" in text
    assert page(one(training(), tmp_path), ascii_only=True).isascii()


def test_a_line_that_all_allocations_share_is_named_once(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("python", "train.py(3): main", 0, 1000)
    for index, name in enumerate(("aten::mm", "aten::add")):
        writer.host("operator", name, 10 + 100 * index, 50)
        writer.memory(20 + 100 * index, 100, 100 * (index + 1), address=index)
    text = page(one(writer, tmp_path))
    assert text.count("train.py(3): main") == 1
    assert "allocated at" not in text


def test_the_chart_is_filled_from_below() -> None:
    assert list(area_chart((0, 1, 2, 4), Paper(ascii_only=True), width=10, height=2)) == ["   #", " .##"]
    assert list(area_chart((1, 1, 4, 1), Paper(ascii_only=True), width=2, height=2)) == [" #", ".#"]
    assert list(area_chart((), Paper(), width=5, height=1)) == [""]
    assert list(area_chart((0, 0), Paper(), width=5, height=1)) == [""]
