"""``python -m bench.gpu.switching STUDY... --out docs/benchmarks/gpu-switching``: what levers gained within one launch
on an accelerator, and over launches, as the journals of finished or interrupted searches hold it.

It measures nothing: an accelerator that is lent for minutes runs the searches (``python -m bench.gpu --search SECONDS``
with the studies copied away), and this makes the page, on any machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bench.report import command_line, table
from hotlap import plan as plans_of
from hotlap.measure.speed import compare, compare_within_launch
from hotlap.records import Estimate, Machine, Plan, Replicate, Run
from hotlap.study.reading import read_journal
from hotlap.study.records import Header, MachineAnswer, TurnAnswer

Rounds: TypeAlias = tuple[float, ...]
_FEWEST_REPLICATES = 2


@dataclass(frozen=True, slots=True)
class Row:
    """A plan next to the unmodified script: within one launch, of so many rounds, or over so many launches."""

    plan: str
    way: str
    speedup: Estimate
    count: int
    peak_bytes: int
    start_seconds: float


@dataclass(frozen=True, slots=True)
class Searched:
    """One search: how it began, its machine, and its rows."""

    header: Header
    machine: Machine
    rows: tuple[Row, ...]


def searched(study: Path) -> Searched:
    """Read a study's journal. Raises :class:`StudyError` for one that cannot be read, :class:`ValueError` for one
    without a machine."""
    content = read_journal(study / "journal.jsonl")
    answers = list(content.answers.values())
    machine = next((it.answer for it in answers if isinstance(it, MachineAnswer)), None)
    if machine is None:
        raise ValueError(f"The search in {study.name} ended before it knew its machine.")
    turns = [it.answer for it in answers if isinstance(it, TurnAnswer) and all(it.answer.rounds)]
    rows = (*_within(turns), *_over(turns))
    return Searched(content.header, machine, rows)


def _within(turns: Sequence[Replicate]) -> Iterator[Row]:
    """Of the launches that switched levers on top of nothing, each configuration."""
    for it in turns:
        if len({run.output_path for run in it.runs}) > 1 or it.runs[0].plan.settings:
            continue
        first, again = it.rounds[:2]
        for run, own in zip(it.runs[1:], it.rounds[1:], strict=True):
            speedup = compare_within_launch(first, again, own).speedup
            yield _row(run, "within one launch", speedup, len(own))


def _over(turns: Sequence[Replicate]) -> Iterator[Row]:
    """Of fresh launches with the unmodified script twice, each plan over its replicates."""
    rounds: dict[Plan, tuple[list[Rounds], list[Rounds], list[Rounds]]] = {}
    runs: dict[Plan, Run] = {}
    for it in turns:
        is_fresh = len({run.output_path for run in it.runs}) == len(it.runs) > 2
        if not is_fresh or it.runs[1].plan.settings:
            continue
        for run, own in zip(it.runs[1:], it.rounds[1:], strict=True):
            arms = rounds.setdefault(run.plan, ([], [], []))
            for arm, seconds in zip(arms, (it.rounds[0], it.rounds[1], own), strict=True):
                arm.append(seconds)
            runs[run.plan] = run
    for plan, arms in rounds.items():
        if len(arms[0]) >= _FEWEST_REPLICATES:
            yield _row(runs[plan], "over launches", compare(*arms).speedup, len(arms[0]))


def _row(run: Run, way: str, speedup: Estimate, count: int) -> Row:
    words = ", ".join(plans_of.describe(it) for it in run.plan.settings) or "nothing (the repeat)"
    return Row(words, way, speedup, count, run.device_peak_bytes, run.startup_seconds)


def machine_of(found: Searched) -> str:
    """One line, as other pages have."""
    devices = ", ".join(it.name for it in found.machine.accelerators) or "no accelerator"
    memory = f"{found.machine.memory_bytes / 2**30:.0f} GiB"
    return f"{found.machine.processor}, {found.machine.cores} cores, {memory}, {devices}"


def markdown(found: Sequence[Searched], command: str) -> str:
    """The page."""
    parts = [
        "# Levers within one launch, on an accelerator",
        f"- command: `{command}`, from the journals of these searches",
        "Speedups over the unmodified script with 95 % intervals: within one launch over its rounds, which does not\n"
        "cover what launches differ by and supports no claim; over launches over replicates. The peak is that of the\n"
        "device, of each configuration by itself.",
    ]
    for number, it in enumerate(found, start=1):
        arguments = " ".join(it.header.workload.arguments)
        script = f"{Path(it.header.workload.target).name} {arguments}".strip()
        versions = ", ".join(f"{name} {version}" for name, version in it.machine.library_versions)
        head = (f"`python {script}`", f"date: {it.header.started[:10]}", f"machine: {machine_of(it)}")
        rows = [
            (
                row.plan,
                f"{row.way}, {row.count} {'rounds' if row.way == 'within one launch' else 'replicates'}",
                f"{row.speedup.value:.3f} ({row.speedup.low:.3f} to {row.speedup.high:.3f})",
                f"{row.peak_bytes / 2**30:.2f} GiB",
                f"{row.start_seconds:.0f} s",
            )
            for row in it.rows
        ]
        parts += [
            f"## Search {number}",
            "\n".join(f"- {one}" for one in (*head, f"versions: python {it.machine.python_version}, {versions}")),
            table(("plan", "measured", "speedup", "peak", "start"), rows),
        ]
    return "\n\n".join(parts) + "\n"


def data(found: Sequence[Searched], command: str) -> dict[str, object]:
    """The same for programs."""
    return {
        "date": max(it.header.started[:10] for it in found),
        "machine": "; ".join(dict.fromkeys(map(machine_of, found))),
        "versions": dict(found[-1].machine.library_versions),
        "command": command,
        "data": [
            {
                "script": Path(it.header.workload.target).name,
                "arguments": list(it.header.workload.arguments),
                "rows": [
                    {
                        "plan": row.plan,
                        "way": row.way,
                        "speedup": [row.speedup.low, row.speedup.value, row.speedup.high],
                        "count": row.count,
                        "peak_bytes": row.peak_bytes,
                        "start_seconds": row.start_seconds,
                    }
                    for row in it.rows
                ],
            }
            for it in found
        ],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.switching", description=__doc__)
    parser.add_argument("studies", nargs="+", type=Path, help="folders of studies, each with its journal")
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    options = parser.parse_args(arguments)
    found, command = [searched(it) for it in options.studies], command_line("bench.gpu.switching")
    options.out.with_suffix(".md").write_text(markdown(found, command), encoding="utf-8")
    options.out.with_suffix(".json").write_text(json.dumps(data(found, command), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
