"""The page of a comparison: the answer first, within its width, and foreign text as text."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "compare"))

from building import breakdown, kernel, study

from hotlap.compare import Difference, difference, side_of_study, side_of_traces
from hotlap.records import Accelerator, CallSite, Estimate, Finding
from hotlap.render.diff import diff_report


def shown(found: Difference, width: int = 120) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, markup=False, highlight=False, emoji=False).print(diff_report(found))
    return stream.getvalue()


def flat(found: Difference) -> str:
    return " ".join(shown(found).split())


def finding(rule: str, share: float) -> Finding:
    return Finding(
        rule=rule,
        share=Estimate(value=share, low=share, high=share),
        title=f"The rule {rule} found {share:.0%}.",
        site=CallSite(role="step", file="/home/someone/train.py", line=31),
    )


def slower(name: str = "gemm") -> Difference:
    """Make steps 80 ms slower: 60 ms wait for the loader, 20 ms compute, as a kernel is launched twice as often."""
    before = breakdown([100] * 4, compute_ms=320, causes={"queued": 80}, kernels=[kernel(name, 4, 80)])
    after = breakdown(
        [180] * 4, compute_ms=400, causes={"queued": 80, "data_loader": 240}, kernels=[kernel(name, 8, 160)]
    )
    return difference(side_of_traces("before.json", [before]), side_of_traces("after.json", [after]))


def studies() -> Difference:
    gpu = Accelerator(kind="cuda", name="A GPU", memory_bytes=1)
    before = study((0.1,) * 40, findings=[finding("loader-bound", 0.1), finding("host-sync", 0.2)], device=gpu)
    after = study(
        (0.15,) * 40, data_wait=0.06, findings=[finding("loader-bound", 0.4), finding("recompiles", 0.1)],
        torch="2.14.0", device=gpu,
    )  # fmt: skip
    return difference(side_of_study("a", before), side_of_study("b", after))


def test_the_answer_comes_first_and_its_reasons_follow() -> None:
    text = flat(slower())
    assert "A step took 100 ms, and now takes 180 ms (+80 %): slower." in text
    assert "idle: +60.0 ms, 75 % of the change; most of all waiting for the data loader (+60.0 ms, new)" in text
    assert "computing: +20.0 ms, 25 % of the change; most of all gemm (+20.0 ms, more often)" in text
    assert "20.0 ms -> 40.0 ms; launches 1 -> 2; more often" in text


def test_large_changes_of_parts_are_shown_without_a_clear_total() -> None:
    """The loader fell from 47 to 0.5 ms and other host work rose; two steps are not enough for a clear change."""
    before = breakdown([100, 140], compute_ms=100, causes={"data_loader": 94, "launch_bound": 46})
    after = breakdown([80, 130], compute_ms=100, causes={"data_loader": 1, "launch_bound": 109})
    found = difference(side_of_traces("before.json", [before]), side_of_traces("after.json", [after]))
    assert found.verdict == "no-clear-change"
    text = flat(found)
    assert "waiting for the data loader: 47.0 ms -> 500 us in a step (-46.5 ms)" in text
    assert "launch-bound: the host issued work too slowly: 23.0 ms -> 54.5 ms in a step (+31.5 ms)" in text


def test_studies_show_phases_findings_and_what_else_differs() -> None:
    text = flat(studies())
    assert "data wait: +60.0 ms, 120 % of the change" in text
    assert "forward 100 ms 90.0 ms -10.0 ms -20 %" in text
    assert "costs more The rule loader-bound found 40%. loader-bound 10 % -> 40 % train.py:31" in text
    assert "gone The rule host-sync" in text
    assert "new The rule recompiles" in text
    assert "torch 2.13.0 2.14.0" in text
    assert "Versions differ" in text


def test_no_clear_change_gives_no_reasons() -> None:
    side = side_of_traces("a", [breakdown([100] * 4, compute_ms=320, causes={"queued": 80})])
    text = flat(difference(side, side))
    assert "no clear change" in text
    assert "of the change" not in text
    assert "not evidence of a change" in text


def test_warnings_follow_the_answer() -> None:
    broken = side_of_traces("a", [breakdown([100] * 4, unreliable="kernels are missing")])
    text = shown(difference(broken, broken))
    assert text.index("is unreliable") < text.index("What the device did")


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("make", [slower, studies])
def test_lines_fit_the_terminal(make: object, width: int) -> None:
    lines = shown(make(), width).splitlines()  # type: ignore[operator]
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line != line.rstrip()]


def test_control_characters_in_names_are_removed() -> None:
    evil = "\x1b[2J\x1b]0;title\x07[red]kernel[/red]\u202e\n<b>"
    text = shown(slower(evil))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]kernel[/red]" in text
