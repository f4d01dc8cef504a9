"""Count what a whole search costs: all levers, the plan verified, for scripts that take long to start.

``--source`` names the folder ``src`` of another checkout, whose search is counted too: before and after a change, on
the same machine, one after the other. Examples are searched with a budget, since the goal for them is a plan in it.

With ``--pieces FOLDER`` a finished search is stored, and an unfinished one goes on where it was, as ``hotlap tune
--resume`` does: the same command goes on after a kill. ``--minutes`` ends the command after so long; it then says what
is left. A search of a script that starts at once takes about 5 minutes on two quiet cores, of one that takes 10 s about
10, of one that takes 60 s about 25, and of an example at most its budget.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from bench.pieces import UNFINISHED, add_options, store, stored, until_of
from bench.report import command_line, machine_line, table, today, write, written
from hotlap.experiment.trials import FEWEST_ARMS
from hotlap.measure.speed import HEADLINE_REPLICATES

ROOT = Path(__file__).parents[2]
SLOW_START = Path(__file__).with_name("slow_start.py")
STARTUPS = (0.0, 10.0, 60.0)
HERE = "this"
BEFORE = "before"
EXAMPLE_BUDGET_SECONDS = 360.0
"""The goal: a plan of each example in this time on two cores."""

MOST_LAUNCHES = 16
MOST_SECONDS_OF_A_SLOW_START = 1200.0
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.5


class Row(msgspec.Struct, kw_only=True):
    """One search.

    ``first_launches`` and ``first_seconds`` are what it took until the first plan was verified, which a search may go
    on to improve; None if there was none. ``launches`` are processes of the script that were started; ``levers`` those
    that were kept. ``wall_seconds`` is what the search counts as spent, over all its parts; ``processor_seconds`` None
    if a part of it was killed. ``date`` is when it ended (empty: before rows had one).
    """

    script: str
    startup_seconds: float
    version: str
    launches: int
    wall_seconds: float
    processor_seconds: float | None
    status: str
    speedup: float | None
    low: float | None
    high: float | None
    levers: tuple[str, ...]
    budget_seconds: float | None = None
    parts: int = 1
    first_launches: int | None = None
    first_seconds: float | None = None
    machine: str = ""
    date: str = ""


class Begun(msgspec.Struct, kw_only=True):
    """The parts of a search so far. ``running``: the last one was not seen to end."""

    parts: int = 0
    processor_seconds: float | None = 0.0
    running: bool = False


@dataclass(frozen=True)
class Case:
    """A search to make: of a script with a start-up, by a version of hotlap."""

    script: Path
    startup: float
    version: str
    source: Path
    budget: float | None = None

    @property
    def name(self) -> str:
        """Names the files of its pieces."""
        return f"{self.script.stem}-{self.startup:g}-{self.version}-{self.budget or 0:g}"

    @property
    def words(self) -> list[str]:
        """The command of a new search."""
        budget = ["--budget", f"{self.budget:g}s"] if self.budget else []
        arguments = ["--startup", f"{self.startup:g}"] if self.script == SLOW_START else []
        return ["tune", "--json", *budget, os.fspath(self.script), *arguments]


def main(words: list[str]) -> int:
    """Run the requested searches, and write all rows, those of earlier runs too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--startups", default=",".join(f"{it:g}" for it in STARTUPS), help="seconds, with commas")
    parser.add_argument("--examples", default="", help="names of examples to search as well, with commas")
    parser.add_argument("--source", type=Path, help="the src folder of another checkout, searched with as well")
    add_options(parser)
    choices = parser.parse_args(words)
    rows = {_key(it): it for it in map(_row_of, written(choices.out) or [])}
    left: list[str] = []
    with _folder(choices.pieces) as folder:
        until = until_of(choices)
        for case in _cases(choices):
            row = Search(case, folder, until=until).row()
            if row is None:
                left.append(case.name)
                continue
            sys.stderr.write(f"{_cells(row)}\n")
            rows[_key(row)] = row
    kept = sorted(rows.values(), key=_key)
    if kept:
        write(
            choices.out,
            title="What a search costs",
            command=command_line("bench.search_cost"),
            text=text_of(kept),
            data=msgspec.to_builtins(kept),
        )
    if left:
        sys.stderr.write(f"Left, for the same command again: {', '.join(left)}\n")
    return UNFINISHED if left else 0


def text_of(rows: list[Row]) -> str:
    """The table, what it counts, and the goals."""
    heads = (
        "script",
        "start-up",
        "search",
        "launches until a plan was verified",
        "wall until then",
        "launches in all",
        "wall in all",
        "processor",
        "verified speedup",
        "levers kept",
        "run",
    )
    runs = _runs(rows)
    return "\n".join(
        (
            "Whole searches: all levers, the plan verified; examples with a budget. A launch is a process of the "
            "script; the start-up is how long the script sleeps before its loop. A search goes on after its first "
            "verified plan if other levers may still add to it; ended there, it would have that plan.",
            "",
            table(heads, [(*_cells(it), str(runs[_run(it)])) for it in rows]),
            "",
            "The run of the day and machine above is of this version, others are of earlier ones:",
            "",
            *(f"{number}. {it[0] or 'unknown day'}, {it[1] or 'unknown machine'}" for it, number in runs.items()),
            "",
            *goals_of([it for it in rows if it.version == HERE]),
            *against_before(rows),
        )
    )


def _run(row: Row) -> tuple[str, str]:
    return row.date, row.machine


def _runs(rows: list[Row]) -> dict[tuple[str, str], int]:
    """The days and machines of these rows, the latest day first, with a number for each."""
    return {it: number for number, it in enumerate(sorted(set(map(_run, rows)), reverse=True), start=1)}


def goals_of(rows: list[Row]) -> list[str]:
    """A line for each goal that the rows can show to be reached or missed, on each machine."""
    slow = [it for it in rows if it.script == SLOW_START.name]
    slowest = [it for it in slow if it.startup_seconds == STARTUPS[-1]]
    examples = [it for it in rows if it.script != SLOW_START.name]
    lines = []
    if slow:
        most = max(it.first_launches or it.launches for it in slow)
        goal = f"A verified plan in at most {MOST_LAUNCHES} launches"
        lines.append(f"- {goal}: {_reached(most <= MOST_LAUNCHES)}, {most} at most.")
    for it in slowest:
        seconds = it.first_seconds or it.wall_seconds
        reached = it.speedup is not None and seconds <= MOST_SECONDS_OF_A_SLOW_START
        goal = f"A verified plan in {MOST_SECONDS_OF_A_SLOW_START / 60:.0f} min for a start-up of {STARTUPS[-1]:.0f} s"
        lines.append(f"- {goal}: {_reached(reached)}, {seconds / 60:.1f} min{_on(it)}.")
    for it in examples:
        seconds = it.first_seconds or it.wall_seconds
        reached = it.speedup is not None and bool(it.levers) and seconds <= EXAMPLE_BUDGET_SECONDS
        goal = f"A verified plan of {it.script} in {EXAMPLE_BUDGET_SECONDS / 60:.0f} min"
        ended = f"{seconds / 60:.1f} min" if reached else f"{it.status} after {it.wall_seconds / 60:.1f} min"
        lines.append(f"- {goal}: {_reached(reached)}, {ended}{_on(it)}.")
    return lines


def against_before(rows: list[Row]) -> list[str]:
    """A line for each search that another checkout made as well, on the same machine and day."""
    before = {_case(it): it for it in rows if it.version == BEFORE}
    lines = []
    for row in (it for it in rows if it.version == HERE and _case(it) in before):
        other = before[_case(row)]
        subject = f"{row.script} with a start-up of {row.startup_seconds:g} s"
        lines.append(f"- {subject}: {_took(row)}, before the change {_took(other)}{_on(row)}.")
    return lines


def _case(row: Row) -> tuple[str, float, str, str]:
    return row.script, row.startup_seconds, row.machine, row.date


def _took(row: Row) -> str:
    if row.first_launches is None or row.first_seconds is None:
        return f"no verified plan in {row.launches} launches and {_whole_wall(row)}"
    return f"a verified plan in {row.first_launches} launches and {row.first_seconds / 60:.1f} min"


def _whole_wall(row: Row) -> str:
    return f"{row.wall_seconds / 60:.1f} min{', then interrupted' if row.status == 'interrupted' else ''}"


def _on(row: Row) -> str:
    return f" ({row.machine})" if row.machine else ""


def _reached(is_reached: bool) -> str:
    return "reached" if is_reached else "missed"


def launches_in(journal: Iterator[str]) -> int:
    """How many processes of the script a journal records: one for each run, and one for all that shared a launch."""
    return sum(_launches(msgspec.json.decode(line)) for line in journal)


def until_a_plan_was_verified(journal: Iterator[str], kept: Collection[str]) -> tuple[int, float] | None:
    """The launches and seconds until the headline's number of replicates of a plan were complete, next to the
    unmodified script twice; of a plan whose levers were all ``kept``, as that of a refused one is no answer."""
    seen: Counter[frozenset[str]] = Counter()
    launches, seconds = 0, 0.0
    for line in journal:
        entry = msgspec.json.decode(line)
        launches += _launches(entry)
        seconds += entry.get("elapsed_seconds", 0.0)
        plan = _verified_by(entry)
        seen[plan] += 1
        if plan and plan.issubset(kept) and seen[plan] == HEADLINE_REPLICATES:
            return launches, seconds
    return None


def _verified_by(entry: dict[str, Any]) -> frozenset[str]:
    """The levers of a plan that a replicate compares with the unmodified script; none in any other entry."""
    if entry["type"] != "turns" or _launches(entry) < FEWEST_ARMS:
        return frozenset()
    first, second, plan, *_ = (
        frozenset(it["lever"] for it in run.get("plan", {}).get("settings", ())) for run in entry["answer"]["runs"]
    )
    return frozenset() if first or second else plan


def _launches(entry: dict[str, Any]) -> int:
    if entry["type"] == "launch":
        return 1
    if entry["type"] != "turns":
        return 0
    return len({run["output_path"] for run in entry["answer"]["runs"]})


def _cases(choices: argparse.Namespace) -> Iterator[Case]:
    versions = {HERE: ROOT / "src", **({BEFORE: choices.source} if choices.source else {})}
    for seconds in filter(None, choices.startups.split(",")):
        for version, source in versions.items():
            yield Case(SLOW_START, float(seconds), version, source)
    for name in filter(None, choices.examples.split(",")):
        for version, source in versions.items():
            yield Case(ROOT / "examples" / f"{name}.py", 0.0, version, source, EXAMPLE_BUDGET_SECONDS)


@contextmanager
def _folder(pieces: Path | None) -> Iterator[Path]:
    if pieces is not None:
        pieces.mkdir(parents=True, exist_ok=True)
        yield pieces.resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@dataclass
class Search:
    """One search, in as many parts as it takes; its study is kept in a folder of its name."""

    case: Case
    folder: Path
    until: float | None = None
    program: list[str] = field(default_factory=lambda: [sys.executable, "-m", "hotlap"])

    def row(self) -> Row | None:
        """The stored row, or that of the search, which is begun or goes on; None if the time ended before it."""
        finished = self.folder / f"{self.case.name}.json"
        known = stored(finished, Row)
        if known is not None:
            return known
        if self.until is not None and time.monotonic() >= self.until:
            return None
        found = self._go_on()
        if found is not None:
            store(finished, found)
        return found

    def _go_on(self) -> Row | None:
        home, progress = self.folder / self.case.name, self.folder / f"{self.case.name}-begun.json"
        home.mkdir(exist_ok=True)
        begun = stored(progress, Begun) or Begun()
        is_new = not any(home.glob(".hotlap/*/journal.jsonl"))
        spent = None if begun.running else begun.processor_seconds
        begun = Begun(parts=begun.parts + 1, processor_seconds=spent, running=True)
        store(progress, begun)
        before = _processor_seconds()
        study = self._tuned(home, self.case.words if is_new else ["tune", "--json", "--resume"])
        if spent is not None:
            spent += _processor_seconds() - before
        store(progress, Begun(parts=begun.parts, processor_seconds=spent))
        return None if study is None else self._row(home, study, begun.parts, spent)

    def _tuned(self, home: Path, words: list[str]) -> dict[str, Any] | None:
        """The study, as JSON; None if it was interrupted because the time was over."""
        process = subprocess.Popen(
            [*self.program, *words],
            cwd=home,
            env={**os.environ, "PYTHONPATH": os.fspath(self.case.source)},
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=_can_be_interrupted,
        )
        while True:
            try:
                text, _ = process.communicate(timeout=_POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if self.until is not None and time.monotonic() >= self.until:
                    process.send_signal(signal.SIGINT)
                    process.communicate(timeout=_PATIENCE_SECONDS)
                    return None
        found: dict[str, Any] = json.loads(text)
        return found

    def _row(self, home: Path, study: dict[str, Any], parts: int, processor: float | None) -> Row:
        (journal,) = home.glob(".hotlap/*/journal.jsonl")
        levers = tuple(it["lever"] for it in study["plan"]["settings"])
        with journal.open(encoding="utf-8") as lines:
            launches = launches_in(lines)
        with journal.open(encoding="utf-8") as lines:
            first = until_a_plan_was_verified(lines, levers)
        verification = study.get("verification")
        speedup = verification["speed"]["speedup"] if verification else None
        return Row(
            script=self.case.script.name,
            startup_seconds=self.case.startup,
            version=self.case.version,
            launches=launches,
            wall_seconds=study["spent_seconds"],
            processor_seconds=processor,
            status=study["status"],
            speedup=speedup["value"] if speedup else None,
            low=speedup["low"] if speedup else None,
            high=speedup["high"] if speedup else None,
            levers=levers,
            budget_seconds=self.case.budget,
            parts=parts,
            first_launches=first[0] if first else None,
            first_seconds=first[1] if first else None,
            machine=machine_line(),
            date=today(),
        )


def _can_be_interrupted() -> None:
    """Commands that a shell starts in the background ignore SIGINT, and so would theirs."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row_of(found: Any) -> Row:
    return msgspec.convert(found, Row)


def _key(row: Row) -> tuple[str, float, str, str]:
    return row.script, row.startup_seconds, row.version, row.machine


def _cells(row: Row) -> tuple[str, ...]:
    speedup = f"{row.speedup:.2f}x ({row.low:.2f} to {row.high:.2f})" if row.speedup is not None else "none"
    processor = "unknown" if row.processor_seconds is None else f"{row.processor_seconds / 60:.1f} min"
    return (
        row.script,
        f"{row.startup_seconds:g} s",
        row.version,
        "none" if row.first_launches is None else str(row.first_launches),
        "none" if row.first_seconds is None else f"{row.first_seconds / 60:.1f} min",
        str(row.launches),
        _whole_wall(row),
        processor,
        speedup,
        ", ".join(row.levers) or "none",
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
