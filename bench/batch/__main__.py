"""Compare the knee of `hotlap batch` with a sweep of sizes, and count the launches of both.

The sweep times the knee, the script's own size and the powers of two around the knee, whether or not the search tried
them, each next to the script's own size in fresh launches that take turns. A size that is clearly slower after one
replicate gets no more. The fastest of several noisy ratios looks faster than it is; so the fastest size other than the
knee then takes turns with the knee in fresh replicates, and only these say by how much the knee is slower, with an
interval. The search promises 3 %. How far estimates of memory are off is measured by ``bench.estimate``.

Each finished script is stored in the folder ``--pieces``: the same command goes on after them if it was interrupted.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

import msgspec

from bench.report import command_line, table, write
from hotlap.api import local_executor
from hotlap.experiment.options import BatchChoices, Options
from hotlap.measure.disturbance import disturbances
from hotlap.measure.levels import geometric
from hotlap.procedures.batch.changing import Changer, changer_of
from hotlap.procedures.batch.search import search_batch
from hotlap.records import Assignment, BatchSearch, Estimate, Isolation, Study, TurnRequest, Workload
from hotlap.trial.executor import Executor

ROOT = Path(__file__).parents[2]
EXAMPLES: Mapping[str, str] = {"bert": "", "gpt": "--batch-size", "lstm": "", "resnet": ""}
"""The examples, each with the option for its batch size if its batches come from no DataLoader."""

MOST_SIZES = 7
REPLICATES = 3
CONFIRMING_REPLICATES = 5
CONFIDENCE = 0.95
CLEARLY_SLOWER = 0.15
"""A size that is slower than the fastest by this share in its first replicate gets no more; launches of the same code
differ by 2 to 6 %."""

ROUNDS = 6
BLOCK_STEPS = 4
MOST_SECONDS = 300.0
"""The longest that one replicate may take, start-up and warm-up included."""


class Swept(msgspec.Struct, kw_only=True):
    """A size of the sweep: its throughput as a ratio to that of the script's own size, from so many replicates."""

    size: int
    rate: float
    replicates: int


class Row(msgspec.Struct, kw_only=True):
    """One script.

    ``swept`` leaves out sizes that did not run. ``rival`` is the fastest of them other than the knee (0: none), and
    ``slower`` the seconds per sample of the knee as a ratio to the rival's, in fresh replicates: above 1 the knee
    is slower. Launches are processes of the script; those of the sweep include the comparison with the rival.
    """

    script: str
    own: int
    knee: int
    largest_fitting: int
    bound_by: str = ""
    swept: tuple[Swept, ...] = ()
    rival: int = 0
    slower: Estimate | None = None
    search_launches: int
    sweep_launches: int
    disturbed: int = 0
    """So many replicates of the sweep were disturbed by other processes."""

    obstacle: str = ""


def main(words: list[str]) -> None:
    """Search and sweep every example, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--examples", default=",".join(EXAMPLES), help="names of examples, with commas")
    parser.add_argument("--most", type=int, default=256, help="the largest size, of search and sweep (default: 256)")
    parser.add_argument("--pieces", type=Path, help="the folder of finished scripts (default: none is stored)")
    choices = parser.parse_args(words)
    rows = []
    for name in choices.examples.split(","):
        rows.append(kept(choices.pieces, f"{name}-{choices.most}", partial(_measured, name, choices.most)))
        sys.stderr.write(f"{cells(rows[-1])}\n")
    write(
        choices.out,
        title="The batch size: search against sweep",
        command=command_line("bench.batch"),
        text=text_of(rows),
        data=msgspec.to_builtins(rows),
    )


def kept(folder: Path | None, name: str, measure: Callable[[], Row]) -> Row:
    """The row that is stored under this name; measured, and stored, if there is none yet."""
    if folder is None:
        return measure()
    path = folder / f"{name}.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Row)
    row = measure()
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_bytes(msgspec.json.encode(row))
    unfinished.replace(path)
    return row


def _measured(name: str, most: int) -> Row:
    workload = Workload(
        kind="script",
        target=os.fspath(ROOT / "examples" / f"{name}.py"),
        arguments=("--batch-size", "6") if EXAMPLES[name] else (),  # given, so that its value is known
        directory=os.fspath(ROOT),
        python=sys.executable,
    )
    choices = BatchChoices(most=most, flag=EXAMPLES[name])
    with tempfile.TemporaryDirectory() as folder:
        return row_of(name, workload, lambda: local_executor(Path(folder), Isolation()), choices)


def row_of(name: str, workload: Workload, executor: Callable[[], Executor], choices: BatchChoices) -> Row:
    """Search, then sweep up to the same largest size; each has an executor of its own."""
    study = search_batch(workload, Options(batch=choices), executor())
    search = study.batch_search or BatchSearch(obstacle=study.status_text)
    row = Row(
        script=name,
        own=search.own,
        knee=search.knee,
        largest_fitting=search.largest_fitting,
        bound_by=search.bound_by,
        search_launches=search.launches,
        sweep_launches=0,
        obstacle=search.obstacle or ("" if search.knee else study.status_text or "No size could be timed."),
    )
    changer = _changer(workload, study, choices.flag)
    if row.obstacle or changer is None:
        return row
    sweep = Sweep(workload, executor(), changer)
    row.swept = sweep.swept(sizes_around(search, choices.most or search.largest_fitting))
    row.rival = max((it for it in row.swept if it.size != search.knee), key=lambda it: it.rate, default=_NONE).size
    if row.rival:
        row.slower = sweep.compared(row.rival, search.knee)
    row.sweep_launches, row.disturbed = sweep.launches, sweep.disturbed
    return row


_NONE = Swept(size=0, rate=0.0, replicates=0)


def _changer(workload: Workload, study: Study, flag: str) -> Changer | None:
    if study.baseline is None:
        return None
    changer = changer_of(workload, study.baseline.facts, flag)
    return None if isinstance(changer, str) else changer


def sizes_around(search: BatchSearch, most: int) -> tuple[int, ...]:
    """The knee, the script's own size, and of its halves and doubles up to ``most`` those nearest to the knee."""
    powers = range(-math.floor(math.log2(search.own)), math.floor(math.log2(max(1.0, most / search.own))) + 1)
    grid = {round(search.own * 2**power) for power in powers} - {search.own, search.knee}
    nearest = sorted(grid, key=lambda it: abs(math.log(it / search.knee)))
    first = {search.own, search.knee}
    return tuple(sorted(first | set(nearest[: MOST_SIZES - len(first)])))


@dataclass
class Sweep:
    """Times sizes against each other in fresh launches that take turns."""

    workload: Workload
    executor: Executor
    changer: Changer
    launches: int = 0
    disturbed: int = 0

    def swept(self, sizes: Sequence[int]) -> tuple[Swept, ...]:
        """The throughput of each size as a ratio to that of the script's own; those that failed are left out."""
        gains: dict[int, list[float]] = {}
        for number in range(REPLICATES):
            for size in sizes if number == 0 else self._close(gains):
                gain = self._gain(self.changer.own, size, number) if size != self.changer.own else 0.0
                if gain is None:
                    gains.pop(size, None)
                else:
                    gains.setdefault(size, []).append(gain)
        return tuple(Swept(size=it, rate=math.exp(fmean(gains[it])), replicates=len(gains[it])) for it in sorted(gains))

    def compared(self, one: int, other: int) -> Estimate | None:
        """The seconds per sample of ``other`` as a ratio to those of ``one``, with its interval; None if one fails."""
        gains = [self._gain(other, one, REPLICATES + number) for number in range(CONFIRMING_REPLICATES)]
        known = [it for it in gains if it is not None]
        return geometric(known, "x", CONFIDENCE) if len(known) == CONFIRMING_REPLICATES else None

    def _close(self, gains: Mapping[int, Sequence[float]]) -> list[int]:
        """The sizes that may be the fastest, from the first replicate of each."""
        fastest = max((it[0] for it in gains.values()), default=0.0)
        return [size for size, of in gains.items() if of[0] >= fastest + math.log(1 - CLEARLY_SLOWER)]

    def _gain(self, reference: int, size: int, number: int) -> float | None:
        """The logarithm of the throughput of ``size`` as a ratio to that of ``reference``; None if either failed."""
        request = TurnRequest(
            arms=(self._assignment(reference), self._assignment(size)),
            rounds=ROUNDS,
            block_steps=BLOCK_STEPS,
            order_seed=number,
            most_seconds=MOST_SECONDS,
        )
        turns = self.executor.submit(request, self.executor.slots()[0]).result()
        self.launches += len(turns.runs)
        self.disturbed += bool(disturbances(turns.runs))
        if not turns.rounds or not turns.rounds[0]:
            return None
        return fmean(map(math.log, turns.rounds[0])) - fmean(map(math.log, turns.rounds[1]))

    def _assignment(self, size: int) -> Assignment:
        workload = self.changer.workload(size) or self.workload
        return Assignment(workload=workload, instruments=self.changer.instruments(size))


def text_of(rows: Sequence[Row]) -> str:
    """The table, and what its columns are."""
    heads = (
        *("script", "own size", "knee", "search ended by", "sizes of the sweep, with throughput"),
        *("fastest other size", "knee slower by", "launches", "of the sweep"),
    )
    known = [it for it in rows if it.slower is not None]
    lines = []
    if known:
        worst = max(known, key=lambda it: it.slower.value if it.slower is not None else 0.0)
        lines += [f"In the worst case, {worst.script}, the knee is slower by {_slower(worst)}.", ""]
    lines += [
        f"Throughput is a ratio to that of the script's own size, from {REPLICATES} replicates; * marks sizes that "
        f"were slower than the fastest by {100 * CLEARLY_SLOWER:.0f} % in their first replicate and got no more. "
        f"*Knee slower by* compares the knee with the fastest other size of the sweep in {CONFIRMING_REPLICATES} "
        f"further replicates, with the {100 * CONFIDENCE:.0f} % interval; below 0 the knee is faster. Launches are "
        "processes of the script.",
        "",
        table(heads, [cells(it) for it in rows]),
    ]
    disturbed = [f"{it.disturbed} of {it.script}" for it in rows if it.disturbed]
    if disturbed:
        lines += ["", f"Other processes disturbed replicates of the sweep: {', '.join(disturbed)}."]
    return "\n".join(lines)


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table; a script whose size cannot be changed says why."""
    if row.obstacle:
        return row.script, "", "", "", row.obstacle, "", "", "", ""
    swept = ", ".join(f"{it.size}: {it.rate:.2f}{'' if it.replicates >= REPLICATES else '*'}" for it in row.swept)
    return (
        *(row.script, str(row.own), str(row.knee), row.bound_by, swept, str(row.rival or ""), _slower(row)),
        *(str(row.search_launches), str(row.sweep_launches)),
    )


def _slower(row: Row) -> str:
    """By which share the throughput of the knee is below the rival's, with its interval."""
    if row.slower is None:
        return ""
    value, low, high = (100 * (1 - 1 / it) for it in (row.slower.value, row.slower.low, row.slower.high))
    return f"{value:.1f} % ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main(sys.argv[1:])
