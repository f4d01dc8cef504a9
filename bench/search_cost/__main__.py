"""Count what a whole search costs: all levers allowed, the plan verified, for scripts that take long to start.

``--source`` names the folder ``src`` of another checkout, whose search is counted too: before and after a change, on
the same machine, one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.report import command_line, table, write, written

ROOT = Path(__file__).parents[2]
SLOW_START = Path(__file__).with_name("slow_start.py")
STARTUPS = (0.0, 10.0, 60.0)
HERE = "this"
BEFORE = "before"


class Row(msgspec.Struct, kw_only=True):
    """One search. ``launches`` are processes of the script that were started; ``levers`` those that were kept."""

    script: str
    startup_seconds: float
    version: str
    launches: int
    wall_seconds: float
    processor_seconds: float
    status: str
    speedup: float | None
    low: float | None
    high: float | None
    levers: tuple[str, ...]


def main(words: list[str]) -> None:
    """Run the requested searches, and write all rows, those of earlier runs too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--startups", default=",".join(f"{it:g}" for it in STARTUPS), help="seconds, with commas")
    parser.add_argument("--examples", default="", help="names of examples to search as well, with commas")
    parser.add_argument("--source", type=Path, help="the src folder of another checkout, searched with as well")
    choices = parser.parse_args(words)
    rows = {_key(it): it for it in map(_row_of, written(choices.out) or [])}
    versions = {HERE: ROOT / "src", **({BEFORE: choices.source} if choices.source else {})}
    for script, startup in _cases(choices.startups, choices.examples):
        for version, source in versions.items():
            row = _search(script, startup, version, source)
            sys.stderr.write(f"{_cells(row)}\n")
            rows[_key(row)] = row
    kept = sorted(rows.values(), key=_key)
    write(
        choices.out,
        title="What a search costs",
        command=command_line("bench.search_cost"),
        text=text_of(kept),
        data=msgspec.to_builtins(kept),
    )


def text_of(rows: list[Row]) -> str:
    """The table, and what it counts."""
    heads = ("script", "start-up", "search", "launches", "wall", "processor", "verified speedup", "levers kept")
    return "\n".join(
        (
            "Whole searches without a budget: all levers, the plan verified. A launch is a process of the script; the "
            "start-up is how long the script sleeps before its loop.",
            "",
            table(heads, [_cells(it) for it in rows]),
        )
    )


def launches_in(journal: Iterator[str]) -> int:
    """How many processes of the script a journal records: one for each run, and one for all that shared a launch."""
    return sum(_launches(msgspec.json.decode(line)) for line in journal)


def _launches(entry: dict[str, Any]) -> int:
    if entry["type"] == "launch":
        return 1
    if entry["type"] != "turns":
        return 0
    return len({run["output_path"] for run in entry["answer"]["runs"]})


def _cases(startups: str, examples: str) -> Iterator[tuple[Path, float]]:
    for seconds in filter(None, startups.split(",")):
        yield SLOW_START, float(seconds)
    for name in filter(None, examples.split(",")):
        yield ROOT / "examples" / f"{name}.py", 0.0


def _search(script: Path, startup: float, version: str, source: Path) -> Row:
    arguments = ["--startup", f"{startup:g}"] if script == SLOW_START else []
    with tempfile.TemporaryDirectory() as folder:
        before, began = _processor_seconds(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "hotlap", "tune", "--json", os.fspath(script), *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.fspath(source)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        wall, processor = time.perf_counter() - began, _processor_seconds() - before
        study = json.loads(done.stdout)
        (journal,) = Path(folder).glob(".hotlap/*/journal.jsonl")
        with journal.open(encoding="utf-8") as lines:
            launches = launches_in(lines)
    verification = study.get("verification")
    speedup = verification["speed"]["speedup"] if verification else None
    return Row(
        script=script.name,
        startup_seconds=startup,
        version=version,
        launches=launches,
        wall_seconds=wall,
        processor_seconds=processor,
        status=study["status"],
        speedup=speedup["value"] if speedup else None,
        low=speedup["low"] if speedup else None,
        high=speedup["high"] if speedup else None,
        levers=tuple(it["lever"] for it in study["plan"]["settings"]),
    )


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row_of(found: Any) -> Row:
    return msgspec.convert(found, Row)


def _key(row: Row) -> tuple[str, float, str]:
    return row.script, row.startup_seconds, row.version


def _cells(row: Row) -> tuple[str, ...]:
    speedup = f"{row.speedup:.2f}x ({row.low:.2f} to {row.high:.2f})" if row.speedup is not None else "none"
    return (
        row.script,
        f"{row.startup_seconds:g} s",
        row.version,
        str(row.launches),
        f"{row.wall_seconds / 60:.1f} min",
        f"{row.processor_seconds / 60:.1f} min",
        speedup,
        ", ".join(row.levers) or "none",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
