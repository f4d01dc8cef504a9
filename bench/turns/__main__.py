"""``python -m bench.turns --out docs/benchmarks/turns``: how much do identical arms differ whose blocks are taken in 1,
2 and 4 turns?

Each replicate has three fresh launches of an unmodified example that take turns. What the seconds per sample of its
arms differ by, over all rounds, is noise: the less of it in the same time, the smaller the gains that a search can see.
The three ways alternate, so that all meet the same machine, and before each three replicates the example is launched
once by itself, as a search does: its steps say which way the rule would choose (``hotlap.measure.turns_of_a_block``).

``--neighbour SECONDS`` starts a program that keeps one core busy and leaves it idle, each for so long on average.
With ``--pieces FOLDER`` each answer is stored, and the same command goes on after it; ``--minutes`` ends a call after
so long. Rows of other examples, or with another neighbour, that an earlier run wrote to OUT stay in its table.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

import msgspec

from bench.aa.real import workload
from bench.pieces import UNFINISHED, KeptAnswers, TimeIsUp, add_options, until_of
from bench.regret.__main__ import EXAMPLES, SIZES
from bench.report import command_line, machine_line, table, today, write, written
from hotlap.api import local_executor
from hotlap.experiment.costs import BLOCK_SECONDS, BLOCK_STEPS
from hotlap.measure.account import warm_up_steps
from hotlap.measure.turns_of_a_block import turns_of_a_block
from hotlap.records import Assignment, LaunchRequest, Replicate, TurnRequest, Workload
from hotlap.trial.executor import OneSlot

WAYS = (1, 2, 4)
ARMS = 3
OBSERVED_STEPS = 90
_RESAMPLES = 2000
_LEAD_IN = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One way on one example: the root mean square difference of two equal arms, as a share; how long its rounds took;
    and in what share of the time of the first way it is as precise, with an interval over replicates."""

    example: str
    neighbour: str
    turns: int
    replicates: int
    rounds: int
    difference: float
    seconds: float
    share: float
    low: float
    high: float
    chosen: int
    """In how many replicates the rule would have chosen this way."""
    date: str = ""
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """One replicate: the squared differences of its arms, and the seconds of its rounds."""

    squares: tuple[float, ...]
    seconds: float


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.turns", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--examples", nargs="+", choices=list(SIZES), default=["gpt"])
    parser.add_argument("--replicates", type=int, default=10, help="of each way, at least 3 (default: 10)")
    parser.add_argument("--rounds", type=int, default=5, help="of a replicate (default: 5)")
    parser.add_argument("--neighbour", type=float, help="mean seconds for which a program is busy, then idle")
    add_options(parser)
    options = parser.parse_args(arguments)
    if options.replicates < 3 or options.rounds < 2:
        parser.error("at least 3 replicates of 2 rounds are needed")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Measure example after example, and write the table."""
    options = parse(arguments)
    until = until_of(options)
    words = f"busy and idle for {options.neighbour:g} s" if options.neighbour else "none of ours"
    rows = [it for it in earlier(options.out) if it.neighbour != words or it.example not in options.examples]
    for name in options.examples:
        pieces = options.pieces / f"{name}-{options.neighbour or 0:g}" if options.pieces else None
        with tempfile.TemporaryDirectory(prefix="hotlap-turns-") as folder, neighbour(options.neighbour):
            executor = KeptAnswers(local_executor(Path(folder)), pieces, until)
            of = workload(EXAMPLES / f"{name}.py", SIZES[name])
            try:
                seen, chosen = measure(executor, of, options.replicates, options.rounds)
            except TimeIsUp:
                return UNFINISHED
        rows += rows_of(name, words, options.rounds, seen, chosen)
    write(
        options.out,
        title="Blocks in several turns",
        command=command_line("bench.turns"),
        text=text_of(rows),
        data=msgspec.to_builtins(rows),
    )
    print(text_of(rows))
    return 0


@contextmanager
def neighbour(mean_seconds: float | None) -> Iterator[None]:
    """Something else uses a core now and then; nothing if ``mean_seconds`` is None."""
    if mean_seconds is None:
        yield
        return
    program = Path(__file__).with_name("neighbour.py")
    with subprocess.Popen([sys.executable, str(program), str(mean_seconds)]) as process:
        try:
            yield
        finally:
            process.kill()


def earlier(out: Path) -> list[Row]:
    """The rows of an earlier report."""
    return msgspec.convert(written(out) or [], list[Row])


def measure(
    executor: OneSlot, of: Workload, replicates: int, rounds: int
) -> tuple[Mapping[int, Sequence[Seen]], Sequence[int]]:
    """The replicates of each way, and which one the rule chose before each.

    Raises :class:`SystemExit` if a launch fails.
    """
    seen: dict[int, list[Seen]] = {it: [] for it in WAYS}
    chosen: list[int] = []
    assignment = Assignment(workload=of)
    for number in range(replicates):
        launch = LaunchRequest(assignment=msgspec.structs.replace(assignment, seed=number), steps=OBSERVED_STEPS)
        steps = executor.launch(launch).steps
        alike = steps.wall_seconds[warm_up_steps(steps) :]
        chosen.append(turns_of_a_block(alike, max(BLOCK_STEPS, math.ceil(BLOCK_SECONDS / median(alike)))))
        for way in random.Random(number).sample(WAYS, len(WAYS)):
            request = TurnRequest(arms=(assignment,) * ARMS, rounds=rounds, order_seed=number, block_turns=way)
            seen[way].append(seen_of(executor.take_turns(request)))
            print(f"{number + 1}: {way} turns, {math.sqrt(fmean(seen[way][-1].squares)):.2%}", file=sys.stderr)
    return seen, chosen


def seen_of(taken: Replicate) -> Seen:
    """How much the arms of a replicate differ, and how long its rounds took, the steps that lead in included."""
    if not all(taken.rounds):
        raise SystemExit(f"A replicate has no rounds; its arms ended as {[it.ending for it in taken.runs]}.")
    logs = [fmean(map(math.log, row)) for row in taken.rounds]
    timed = (block for run in taken.runs for block in run.blocks[run.warm_up_blocks :])
    return Seen(
        squares=tuple((one - other) ** 2 for one, other in combinations(logs, 2)),
        seconds=math.fsum(it.wall_seconds * (1 + _LEAD_IN / it.steps) for it in timed),
    )


def rows_of(
    name: str, words: str, rounds: int, seen: Mapping[int, Sequence[Seen]], chosen: Sequence[int]
) -> Iterator[Row]:
    """A row for each way."""
    draw = random.Random(0)
    count = len(seen[1])
    drawn = [[draw.randrange(count) for _ in range(count)] for _ in range(_RESAMPLES)]
    for way in WAYS:
        shares = sorted(_share([seen[1][it] for it in those], [seen[way][it] for it in those]) for those in drawn)
        yield Row(
            example=name,
            neighbour=words,
            turns=way,
            replicates=count,
            rounds=rounds,
            difference=math.sqrt(_variance(seen[way])),
            seconds=median(it.seconds for it in seen[way]),
            share=_share(seen[1], seen[way]),
            low=shares[round(0.025 * (_RESAMPLES - 1))],
            high=shares[round(0.975 * (_RESAMPLES - 1))],
            chosen=sum(it == way for it in chosen),
            date=today(),
            machine=machine_line(),
        )


def _variance(seen: Sequence[Seen]) -> float:
    return fmean(fmean(it.squares) for it in seen)


def _share(usual: Sequence[Seen], other: Sequence[Seen]) -> float:
    """Of the time of the usual way, what the other one needs to be as precise: the variance of a mean shrinks as its
    rounds grow in number."""
    seconds = [fmean(it.seconds for it in some) for some in (usual, other)]
    return _variance(other) * seconds[1] / (_variance(usual) * seconds[0])


def text_of(rows: Sequence[Row]) -> str:
    """The table, and what it says."""
    header = ["example", "neighbour", "turns", "replicates x rounds", "equal arms differ by", "seconds of the rounds",
              "as precise in", "the rule's choice", "date", "machine"]  # fmt: skip
    lines = [
        [
            it.example, it.neighbour, str(it.turns), f"{it.replicates} x {it.rounds}", f"{it.difference:.2%}",
            f"{it.seconds:.1f}", "1" if it.turns == 1 else f"{it.share:.2f} ({it.low:.2f}-{it.high:.2f}) of the time",
            f"{it.chosen} of {it.replicates}", it.date, it.machine,
        ]
        for it in rows
    ]  # fmt: skip
    return (
        "Three launches of the same script take turns; the root mean square of what two of them differ by, over all\n"
        "rounds of a replicate. A block of eight steps, or 0.3 seconds, is taken in one turn, or in several, between\n"
        "which the other launches have theirs. The last columns: in what share of the time this way is as precise as\n"
        "one turn (95 % interval by resampling replicates), and how often the rule would choose it, by the steps of\n"
        "one launch before.\n\n" + table(header, lines)
    )


if __name__ == "__main__":
    sys.exit(main())
