"""Compare estimated peaks of memory with real ones: storages of the same steps, counted with data and without.

The models of transformers come from configurations, and are trained on random tokens. The last one is estimated only.
The examples, and one of these models, are also compared with each lever that an estimate tries. With ``--pieces
FOLDER`` each finished case is stored, and the same command goes on after it; a case takes 10 to 60 s.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from bench.pieces import UNFINISHED, TimeIsUp, add_options, check_time, piece, until_of
from bench.report import command_line, table, write
from hotlap.api import local_executor
from hotlap.plan import describe
from hotlap.procedures.estimate import plans_for
from hotlap.records import (
    AccountMemory,
    Assignment,
    FakeTensors,
    Instrument,
    Isolation,
    LaunchRequest,
    MemoryAmounts,
    Observe,
    Plan,
    Run,
    ScriptFacts,
    Setting,
    Situation,
    Workload,
)
from hotlap.wording import ending_text

ROOT = Path(__file__).parents[2]
MODEL = Path(__file__).with_name("from_config.py")
STEPS = 3
MEBIBYTE = 2**20
CASES: tuple[tuple[str, Path, str], ...] = (
    ("examples/gpt.py", ROOT / "examples" / "gpt.py", ""),
    ("examples/bert.py", ROOT / "examples" / "bert.py", ""),
    ("examples/lstm.py", ROOT / "examples" / "lstm.py", ""),
    ("examples/resnet.py", ROOT / "examples" / "resnet.py", ""),
    ("GPT-2, 124 M, AdamW", MODEL, ""),
    ("GPT-2, 124 M, AdamW, batch of 8", MODEL, "--batch-size 8"),
    ("Llama, 0.2 B, AdamW", MODEL, "--kind llama --layers 12"),
    ("GPT-2, 355 M, SGD", MODEL, "--layers 24 --hidden 1024 --heads 16 --optimizer SGD"),
    (
        "GPT-2, 1.5 B, SGD, bfloat16",
        MODEL,
        "--layers 48 --hidden 1600 --heads 25 --optimizer SGD --dtype bfloat16 --batch-size 1 --length 32",
    ),
)
ESTIMATED_ONLY = ("GPT-2, 1.5 B, AdamW", MODEL, "--layers 48 --hidden 1600 --heads 25")


WITH_LEVERS: tuple[tuple[str, Path, str], ...] = (*CASES[:4], CASES[4])


class Row(msgspec.Struct, kw_only=True):
    """One case, with a plan; ``measured_bytes`` is None where it was estimated only."""

    name: str
    plan: str = ""
    measured_bytes: int | None
    estimated_bytes: int
    measured: MemoryAmounts | None
    estimated: MemoryAmounts
    trouble: str = ""

    @property
    def error(self) -> float | None:
        """The estimate's error as a share of what was measured."""
        return None if self.measured_bytes is None else self.estimated_bytes / self.measured_bytes - 1


def main(words: list[str]) -> int:
    """Run every case and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    add_options(parser)
    choices = parser.parse_args(words)
    bench = Bench(choices.pieces, until_of(choices))
    try:
        rows = [bench.row(*case) for case in CASES]
        rows.append(bench.row(*ESTIMATED_ONLY, measure=False))
        with_levers = [row for case in WITH_LEVERS for row in bench.rows_with_levers(*case)]
    except TimeIsUp:
        sys.stderr.write("Not finished; the same command goes on.\n")
        return UNFINISHED
    write(
        choices.out,
        title="Estimates of memory",
        command=command_line("bench.estimate"),
        text=text_of(rows, with_levers),
        data=msgspec.to_builtins([*rows, *with_levers]),
    )
    return 0


def text_of(rows: Sequence[Row], with_levers: Sequence[Row]) -> str:
    """The cases, and the same with each lever."""
    lines = [
        f"The largest error is {100 * worst_of(rows):.1f} %. Peaks are of tensors on the CPU, without data sets.",
        "",
        table(("model", "measured", "estimated", "error"), [_cells(it) for it in rows]),
        "",
        "## By lever",
        "",
        "The same with each lever that an estimate tries, where it applies: what a trial with the lever holds at its",
        "peak. *Saved* is what was measured without the lever, less what was measured with it.",
        "",
    ]
    plain = {it.name: it.measured_bytes for it in rows}
    cells = [(it.name, it.plan, *_cells(it)[1:], _saved(it, plain[it.name])) for it in with_levers]
    lines.append(table(("model", "lever", "measured", "estimated", "error", "saved"), cells))
    by_lever = {it.plan: [one for one in with_levers if one.plan == it.plan and not one.trouble] for it in with_levers}
    found = [(plan, str(len(its)), f"{100 * worst_of(its):.1f} %") for plan, its in by_lever.items() if its]
    lines += ["", table(("lever", "models", "largest error"), found)]
    return "\n".join(lines)


def worst_of(rows: Sequence[Row]) -> float:
    """The largest error among these, as a share."""
    return max((abs(it.error) for it in rows if it.error is not None), default=0.0)


@dataclass
class Bench:
    """Measures what is not among the pieces, until the time of a call is over."""

    pieces: Path | None
    until: float | None

    def row(self, name: str, script: Path, arguments: str, *, measure: bool = True) -> Row:
        """A case without a lever."""
        return self._kept(name, script, arguments, (), measure=measure)

    def rows_with_levers(self, name: str, script: Path, arguments: str) -> list[Row]:
        """A case with each lever that applies to it."""
        facts = piece(self.pieces, f"facts-{_file_name(name)}", ScriptFacts, partial(self._facts, script, arguments))
        situation = Situation(facts=facts)
        plans = plans_for(situation)
        return [self._kept(name, script, arguments, it.settings, measure=True) for it in plans]

    def _facts(self, script: Path, arguments: str) -> ScriptFacts:
        check_time(self.until)
        return _run(script, arguments, (Observe(), AccountMemory(steps=STEPS), FakeTensors()), ()).facts

    def _kept(self, name: str, script: Path, arguments: str, settings: tuple[Setting, ...], *, measure: bool) -> Row:
        words = " ".join(("estimate", _file_name(name), *map(describe, settings)))
        measured = partial(self._row, name, script, arguments, settings, measure=measure)
        return piece(self.pieces, _file_name(words), Row, measured)

    def _row(self, name: str, script: Path, arguments: str, settings: tuple[Setting, ...], *, measure: bool) -> Row:
        check_time(self.until)
        real = _run(script, arguments, (AccountMemory(steps=STEPS),), settings) if measure else None
        fake = _run(script, arguments, (AccountMemory(steps=STEPS), FakeTensors()), settings)
        plan = " and ".join(map(describe, settings))
        for it in (real, fake):
            if it is not None and it.memory is None:
                if not settings:
                    raise SystemExit(f"{script.name} {arguments}: {it.ending}")
                nothing = MemoryAmounts()
                return Row(
                    name=name,
                    plan=plan,
                    measured_bytes=None,
                    estimated_bytes=0,
                    measured=None,
                    estimated=nothing,
                    trouble=ending_text(it.ending),
                )
        assert fake.memory is not None
        measured = real.memory.peak if real is not None and real.memory is not None else None
        return Row(
            name=name,
            plan=plan,
            measured_bytes=None if measured is None else measured.total - measured.other,
            estimated_bytes=fake.memory.peak.total - fake.memory.peak.other,
            measured=measured,
            estimated=fake.memory.peak,
        )


def _file_name(words: str) -> str:
    return re.sub(r"[^a-zA-Z0-9.]+", "-", words).strip("-")


def _run(script: Path, arguments: str, instruments: tuple[Instrument, ...], settings: tuple[Setting, ...]) -> Run:
    workload = Workload(
        kind="script",
        target=os.fspath(script),
        arguments=tuple(arguments.split()),
        directory=os.fspath(ROOT),
        python=sys.executable,
    )
    assignment = Assignment(
        workload=workload,
        plan=Plan(settings=settings),
        instruments=instruments,
        startup_limit_seconds=600.0,
        block_limit_seconds=600.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        executor = local_executor(Path(folder), Isolation())
        request = LaunchRequest(assignment=assignment, steps=STEPS + 1)
        run = executor.submit(request, executor.slots()[0]).result()
    peak = f"{run.memory.peak.total / MEBIBYTE:.0f} MiB" if run.memory is not None else ending_text(run.ending)
    sys.stderr.write(f"{script.name} {arguments} {' '.join(map(describe, settings))} {peak}\n")
    return run


def _cells(row: Row) -> tuple[str, ...]:
    if row.trouble:
        return row.name, row.trouble, "", ""
    measured = "" if row.measured_bytes is None else f"{row.measured_bytes / MEBIBYTE:,.1f} MiB"
    error = "" if row.error is None else f"{100 * row.error:+.1f} %"
    return row.name, measured, f"{row.estimated_bytes / MEBIBYTE:,.1f} MiB", error


def _saved(row: Row, plain: int | None) -> str:
    if row.measured_bytes is None or plain is None:
        return ""
    return f"{(plain - row.measured_bytes) / MEBIBYTE:,.1f} MiB"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
