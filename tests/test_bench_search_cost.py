"""What the benchmark of a search's cost counts and writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.search_cost.__main__ import Row, launches_in, text_of


def entry(kind: str, *outputs: str) -> str:
    runs: list[dict[str, Any]] = [{"output_path": it} for it in outputs]
    answer: dict[str, Any] = {"runs": runs} if kind == "turns" else {"output_path": "x"}
    return json.dumps({"type": kind, "answer": answer})


def test_arms_that_share_a_process_are_one_launch() -> None:
    journal = [
        json.dumps({"type": "header"}),
        entry("machine"),
        entry("launch"),
        entry("turns", "run-2/output.txt", "run-2/output.txt", "run-2/output.txt"),
        entry("turns", "run-3/output.txt", "run-4/output.txt"),
    ]
    assert launches_in(iter(journal)) == 1 + 1 + 2


def test_the_table_has_a_row_for_each_search() -> None:
    row = Row(
        script="slow_start.py",
        startup_seconds=10.0,
        version="this",
        launches=31,
        wall_seconds=300.0,
        processor_seconds=540.0,
        status="finished",
        speedup=1.5,
        low=1.4,
        high=1.6,
        levers=("loader", "mixed-precision"),
    )
    text = text_of([row])
    cells = "| slow_start.py | 10 s | this | 31 | 5.0 min | 9.0 min | 1.50x (1.40 to 1.60) | loader, mixed-precision |"
    assert cells in text
