"""Compare estimated peaks of memory with real ones: storages of the same steps, counted with data and without.

The models of transformers come from configurations, and are trained on random tokens. The last one is estimated only.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import msgspec

from bench.report import command_line, table, write
from hotlap.api import local_executor
from hotlap.records import (
    AccountMemory,
    Assignment,
    FakeTensors,
    Instrument,
    Isolation,
    LaunchRequest,
    MemoryAmounts,
    Workload,
)

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


class Row(msgspec.Struct, kw_only=True):
    """One case; ``measured_bytes`` is None where it was estimated only."""

    name: str
    measured_bytes: int | None
    estimated_bytes: int
    measured: MemoryAmounts | None
    estimated: MemoryAmounts

    @property
    def error(self) -> float | None:
        """The estimate's error as a share of what was measured."""
        return None if self.measured_bytes is None else self.estimated_bytes / self.measured_bytes - 1


def main(words: list[str]) -> None:
    """Run every case and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    choices = parser.parse_args(words)
    rows = [_row(*case, measure=True) for case in CASES]
    rows.append(_row(*ESTIMATED_ONLY, measure=False))
    worst = max(abs(it.error) for it in rows if it.error is not None)
    text = "\n".join(
        (
            f"The largest error is {100 * worst:.1f} %. Peaks are of tensors on the CPU, without data sets.",
            "",
            table(("model", "measured", "estimated", "error"), [_cells(it) for it in rows]),
        )
    )
    write(
        choices.out,
        title="Estimates of memory",
        command=command_line("bench.estimate"),
        text=text,
        data=msgspec.to_builtins(rows),
    )


def _row(name: str, script: Path, arguments: str, *, measure: bool) -> Row:
    measured = _peak(script, arguments, ()) if measure else None
    estimated = _peak(script, arguments, (FakeTensors(),))
    return Row(
        name=name,
        measured_bytes=None if measured is None else measured.total - measured.other,
        estimated_bytes=estimated.total - estimated.other,
        measured=measured,
        estimated=estimated,
    )


def _peak(script: Path, arguments: str, instruments: tuple[Instrument, ...]) -> MemoryAmounts:
    workload = Workload(
        kind="script",
        target=os.fspath(script),
        arguments=tuple(arguments.split()),
        directory=os.fspath(ROOT),
        python=sys.executable,
    )
    assignment = Assignment(
        workload=workload,
        instruments=(AccountMemory(steps=STEPS), *instruments),
        startup_limit_seconds=600.0,
        block_limit_seconds=600.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        executor = local_executor(Path(folder), Isolation())
        request = LaunchRequest(assignment=assignment, steps=STEPS + 1)
        run = executor.submit(request, executor.slots()[0]).result()
    if run.memory is None:
        raise SystemExit(f"{script.name} {arguments}: {run.ending}")
    sys.stderr.write(f"{script.name} {arguments} {run.memory.peak.total / MEBIBYTE:.0f} MiB\n")
    return run.memory.peak


def _cells(row: Row) -> tuple[str, ...]:
    measured = "" if row.measured_bytes is None else f"{row.measured_bytes / MEBIBYTE:,.1f} MiB"
    error = "" if row.error is None else f"{100 * row.error:+.1f} %"
    return row.name, measured, f"{row.estimated_bytes / MEBIBYTE:,.1f} MiB", error


if __name__ == "__main__":
    main(sys.argv[1:])
