"""The page of a trace: complete, within its width, and plain about what must not be trusted."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "trace"))

from trace_writer import TraceWriter, training_trace

from hotlap.render.trace import CAUSES, trace_report, traces_report
from hotlap.trace import Breakdown, analyse, read_trace
from hotlap.trace.idle import CAUSES as KNOWN_CAUSES


def shown(what: object, width: int = 120) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, markup=False, highlight=False, emoji=False).print(what)
    return stream.getvalue()


def breakdown_of(writer: TraceWriter, folder: Path) -> Breakdown:
    return analyse(read_trace(writer.write(folder / "trace.json")))


def test_every_cause_has_words() -> None:
    assert set(CAUSES) == set(KNOWN_CAUSES)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_lines_fit_the_terminal(width: int, tmp_path: Path) -> None:
    breakdown = breakdown_of(training_trace(steps=20), tmp_path)
    lines = shown(traces_report([breakdown, breakdown], [("x" * 300, "no trace")]), width).splitlines()
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line != line.rstrip()]


def test_what_it_says(tmp_path: Path) -> None:
    text = " ".join(shown(trace_report(breakdown_of(training_trace(steps=20), tmp_path))).split())
    for expected in (
        "waiting for the data loader",
        "enumerate(DataLoader)#_Single",
        "5 a step",
        "HtoD pageable 20",
        "8 more",
    ):
        assert expected in text


def test_an_unreliable_trace_says_so_first(tmp_path: Path) -> None:
    writer = training_trace()
    writer.host("call", "cudaGraphLaunch", 900, 10, correlation=9_000)
    text = shown(trace_report(breakdown_of(writer, tmp_path)))
    assert "Do not trust these figures" in text
    assert text.index("Do not trust") < text.index("Device 0")


def test_a_shared_stream_of_communication_tells_its_overlap(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch("matmul", 0, 10, 100)
    writer.launch("ncclDevKernel_AllReduce", 5, 60, 100, stream=20)
    assert "50 % of it behind compute" in shown(trace_report(breakdown_of(writer, tmp_path)))
