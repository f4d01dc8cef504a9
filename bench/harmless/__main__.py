"""Run the table of file operations (``tests/harmless``) in trials of every mode, and count the outcomes.

Each row runs once without hotlap and once in a trial of each mode that this machine offers. ``same``: the script saw
the same and nothing outside of the trial changed. ``denied``: it got an error and nothing changed. ``differs``: it saw
something else and nothing changed. ``harms``: something outside changed. The claims: in ``namespaces`` nothing outside
changes; in ``fence`` nothing but modes, owners, times and attributes does; and each row is what the table states.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from bench.report import command_line, table, write

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from harmless.harness import (
    MODES,
    Launched,
    Mode,
    Plain,
    Result,
    Runner,
    Trial,
    Verdict,
    expected,
    launch,
    operations_of,
    verdict,
)
from harmless.operation import Group, Operation
from harmless.table import TABLE

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome of one operation in one mode, and why it was not the same. ``stated``: as the table says."""

    name: str
    topic: str
    mode: Mode
    verdict: Verdict
    stated: bool
    why: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.harmless", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--modes", nargs="*", choices=MODES, default=list(MODES))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="h") as folder:
        unavailable = {it: Trial(it, Path(folder) / f"probe-{it}").unavailable() for it in arguments.modes}
        modes = [mode for mode, reason in unavailable.items() if not reason]
        rows = [row for group in get_args(Group) for row in measured(group, modes, Path(folder))]
    missing = sorted({it.missing() or "" for it in TABLE} - {""})
    parts = [
        introduction(missing, unavailable),
        by_mode(rows, modes),
        by_topic(rows, modes),
        *(named(rows, mode) for mode in modes),
    ]
    text = "\n\n".join(it for it in parts if it)
    data = {"missing": missing, "unavailable": unavailable, "rows": [asdict(it) for it in rows]}
    write(
        arguments.out, title="What a trial does to files", command=command_line("bench.harmless"), text=text, data=data
    )
    print(text)
    return 0 if modes and all(it.stated for it in rows) else 1


def measured(group: Group, modes: Sequence[Mode], folder: Path) -> list[Row]:
    """The rows of a group in every mode."""
    operations = operations_of(TABLE, group)
    plain = launched(Plain(), operations, folder / f"{group}-plain")
    rows = []
    for mode in modes:
        trial = launched(Trial(mode, folder / f"{group}-{mode}-runs"), operations, folder / f"{group}-{mode}")
        rows += [row_of(it, mode, plain.results[it.name], trial.results[it.name]) for it in operations]
    return rows


def launched(runner: Runner, operations: Sequence[Operation], top: Path) -> Launched:
    """One launch, of which all rows must have run."""
    found = launch(runner, operations, top)
    missing = [it.name for it in operations if it.name not in found.results]
    if missing:
        raise SystemExit(f"Not run: {', '.join(missing)}. {found.failure}\n{found.output[-2000:]}")
    return found


def row_of(operation: Operation, mode: Mode, plain: Result, trial: Result) -> Row:
    found = verdict(plain, trial)
    why = {
        "same": "",
        "denied": trial.error,
        "differs": "other content, names or properties",
        "harms": "; ".join(sorted({it.rpartition(": ")[2] for it in trial.changed})),
    }[found]
    return Row(operation.name, operation.topic, mode, found, found in expected(operation, mode), why)


def introduction(missing: Sequence[str], unavailable: dict[Mode, str]) -> str:
    """How many rows there are, and what could not be run."""
    operations = [it for it in TABLE if it.missing() is None]
    said = [f"{len(operations)} file operations of training scripts, in {len({it.topic for it in operations})} topics."]
    if missing:
        left_out = len(TABLE) - len(operations)
        said.append(f"{left_out} more were left out, as {', '.join(missing)} is not installed here.")
    said += [f"`{mode}` is not available here: {reason}" for mode, reason in unavailable.items() if reason]
    return " ".join(said)


def by_mode(rows: Sequence[Row], modes: Sequence[Mode]) -> str:
    counts = Counter((it.mode, it.verdict) for it in rows)
    return table(["mode", *VERDICTS], [[mode, *(str(counts[mode, it]) for it in VERDICTS)] for mode in modes])


def by_topic(rows: Sequence[Row], modes: Sequence[Mode]) -> str:
    """The counts of each topic; a cell holds them in the order of the verdicts."""
    counts = Counter((it.topic, it.mode, it.verdict) for it in rows)
    topics = list(dict.fromkeys(it.topic for it in rows))
    cells = [
        [topic, *(" / ".join(str(counts[topic, mode, it]) for it in VERDICTS) for mode in modes)] for topic in topics
    ]
    return f"By topic, as {' / '.join(VERDICTS)}:\n\n" + table(["topic", *modes], cells)


def named(rows: Sequence[Row], mode: Mode) -> str:
    """The rows that are not the same in a mode."""
    others = [it for it in rows if it.mode == mode and it.verdict != "same"]
    if not others:
        return f"## {mode}\n\nAll rows are the same."
    cells = [
        [it.topic, it.name.replace("|", "\\|"), it.verdict + ("" if it.stated else " (not stated)"), it.why]
        for it in sorted(others, key=lambda it: VERDICTS.index(it.verdict))
    ]
    return f"## {mode}\n\n" + table(["topic", "operation", "result", "why"], cells)


if __name__ == "__main__":
    sys.exit(main())
