"""What the benchmark of memory estimates writes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.estimate.__main__ import MEBIBYTE, Row, text_of

from hotlap.records import MemoryAmounts


def row(name: str, measured: int | None, estimated: int, plan: str = "", trouble: str = "") -> Row:
    nothing = MemoryAmounts()
    return Row(
        name=name,
        plan=plan,
        measured_bytes=None if measured is None else measured * MEBIBYTE,
        estimated_bytes=estimated * MEBIBYTE,
        measured=None if measured is None else nothing,
        estimated=nothing,
        trouble=trouble,
    )


def test_errors_are_shown_by_case_and_by_lever() -> None:
    rows = [row("bert", 100, 101), row("gpt", 50, 50), row("large", None, 9000)]
    with_levers = [
        row("bert", 80, 84, "accumulation"),
        row("gpt", 40, 39, "accumulation"),
        row("gpt", None, 0, "mixed-precision", "It crashed."),
    ]
    text = text_of(rows, with_levers)
    assert "The largest error is 1.0 %." in text
    assert "| large |  | 9,000.0 MiB |  |" in text
    assert "| bert | accumulation | 80.0 MiB | 84.0 MiB | +5.0 % | 20.0 MiB |" in text
    assert "| gpt | mixed-precision | It crashed. |  |  |  |" in text
    assert "| accumulation | 2 | 5.0 % |" in text
    assert "| mixed-precision | " not in text.split("| lever | models |")[1]
