"""Compare the knee of `hotlap batch` with a sweep of all sizes, and count the launches of both.

The sweep times every size next to the script's own, in fresh launches that take turns, whether or not the search tried
it. The regret is by how much the fastest size of the sweep is faster than the knee; the search promises 3 %. How far
estimates of memory are off is measured by ``bench.estimate``.

Each finished script is stored in the folder ``--pieces``: the same command goes on after them if it was interrupted.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import msgspec

from bench.report import command_line, table, write
from hotlap.api import local_executor
from hotlap.experiment.options import BatchChoices, Options
from hotlap.procedures.batch.search import search_batch
from hotlap.records import Assignment, BatchSearch, CallSite, Isolation, ResizeBatches, TurnRequest, Workload
from hotlap.trial.executor import Executor

ROOT = Path(__file__).parents[2]
EXAMPLES = ("bert", "gpt", "lstm", "resnet")
REPLICATES = 3
ROUNDS = 8


class Row(msgspec.Struct, kw_only=True):
    """One script. ``swept`` are the sizes of the sweep with their throughput as a ratio to the script's own; sizes that
    did not run are left out. Launches are processes of the script."""

    script: str
    own: int
    knee: int
    largest_fitting: int
    swept: tuple[tuple[int, float], ...]
    search_launches: int
    sweep_launches: int
    obstacle: str = ""

    @property
    def best(self) -> int:
        """The fastest size of the sweep; 0 where none ran."""
        return max(self.swept, key=lambda it: it[1], default=(0, 0.0))[0]

    @property
    def regret(self) -> float | None:
        """By which share of the best throughput the knee is slower; None where either was not measured."""
        rates = dict(self.swept)
        return 1 - rates[self.knee] / rates[self.best] if self.knee in rates else None


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
        directory=os.fspath(ROOT),
        python=sys.executable,
    )
    with tempfile.TemporaryDirectory() as folder:
        return row_of(name, workload, lambda: local_executor(Path(folder), Isolation()), most)


def row_of(name: str, workload: Workload, executor: Callable[[], Executor], most: int) -> Row:
    """Search, then sweep up to ``most``; each has an executor of its own."""
    study = search_batch(workload, Options(batch=BatchChoices(most=most)), executor())
    search = study.batch_search or BatchSearch(obstacle=study.status_text)
    swept: tuple[tuple[int, float], ...] = ()
    launches = 0
    if not search.obstacle:
        facts = study.baseline.facts if study.baseline is not None else None
        sites = {it.site for it in facts.training_loaders} if facts is not None else set()
        site = next(iter(sites)) if len(sites) == 1 else None
        swept, launches = sweep(workload, executor(), search.own, sizes_up_to(search, most), site)
    return Row(
        script=name,
        own=search.own,
        knee=search.knee,
        largest_fitting=search.largest_fitting,
        swept=swept,
        search_launches=search.launches,
        sweep_launches=launches,
        obstacle=search.obstacle,
    )


def sizes_up_to(search: BatchSearch, most: int) -> tuple[int, ...]:
    """The script's own size, times and divided by two and by the steps between, and all that the search timed."""
    powers = range(-math.floor(math.log2(search.own)), math.floor(math.log2(most / search.own)) + 1)
    grid = {round(search.own * 2**power * part) for power in powers for part in (1.0, 1.5)}
    found = {it.batch_size for it in search.rates if not it.error}
    return tuple(sorted(it for it in grid | found if 1 <= it <= most))


def sweep(
    workload: Workload, executor: Executor, own: int, sizes: Sequence[int], site: CallSite | None
) -> tuple[tuple[tuple[int, float], ...], int]:
    """The throughput of each size as a ratio to that of ``own``, and how many launches that took."""
    slot = executor.slots()[0]
    rates: list[tuple[int, float]] = [(own, 1.0)]
    launches = 0
    for size in sizes:
        if size == own:
            continue
        other = Assignment(workload=workload, instruments=(ResizeBatches(own=own, size=size, site=site),))
        gains = []
        for number in range(REPLICATES):
            request = TurnRequest(arms=(Assignment(workload=workload), other), rounds=ROUNDS, order_seed=number)
            turns = executor.submit(request, slot).result()
            launches += len(turns.runs)
            if turns.rounds[0]:
                gains.append(fmean(map(math.log, turns.rounds[0])) - fmean(map(math.log, turns.rounds[1])))
        if len(gains) == REPLICATES:
            rates.append((size, math.exp(fmean(gains))))
    return tuple(sorted(rates)), launches


def text_of(rows: Sequence[Row]) -> str:
    """The table, and what its columns are."""
    heads = ("script", "own size", "knee", "fastest of the sweep", "knee slower by", "launches", "of the sweep")
    known = [it.regret for it in rows if it.regret is not None]
    worst = f"The knee is at most {100 * max(known):.1f} % slower than the fastest size of the sweep. " if known else ""
    return "\n".join((f"{worst}Launches are processes of the script.", "", table(heads, [cells(it) for it in rows])))


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table; a script whose size cannot be changed says why."""
    if row.obstacle:
        return row.script, "", "", "", row.obstacle, "", ""
    regret = "" if row.regret is None else f"{100 * row.regret:.1f} %"
    return (
        row.script,
        str(row.own),
        str(row.knee),
        str(row.best),
        regret,
        str(row.search_launches),
        str(row.sweep_launches),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
