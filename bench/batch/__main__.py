"""Compare the knee of `hotlap batch` with a sweep of batch sizes, by how much it is slower than the best of the sweep.

For each example:

1. **Search**: `hotlap batch` as a user runs it, with a budget of five minutes and a cap at four times the own size.
   Its knee and its launches are kept.
2. **Sweep**: the script's own size, the knee, and of the halves and doubles of the own size those nearest to the knee,
   whether or not the search tried them. No size is larger than the cap, or than one whose step takes about a second, or
   than one that did not fit. All are alive at once and take turns block by block, in two replicates of fresh launches;
   the second is left out if the first took too long.
3. **Comparison**: the fastest size of the sweep other than the knee takes turns with the knee in five further
   replicates of fresh launches. These alone say by how much the knee is slower, with an interval of Student over
   replicates: the fastest of several noisy sizes looks faster than it is, so what chose it does not count. Where they
   leave it open, five join them in which both sizes take turns. The interval is 95 % for both looks.

The LSTM runs with the variables of the lever ``keep-freed-memory``, in all three. Without them its launches differ by a
tenth, as its memory happens to lie: the system provides it again in every step, more or less of it.

The search promises a knee within 3 % of the best throughput. The result is *kept* where the interval is below 3 %,
*broken* where it is above, and else *open*. How far estimates of memory are off is measured by ``bench.estimate``.

With ``--pieces FOLDER`` the search and each replicate are stored as soon as they are finished, and the same command
goes on after them. One example takes eight to eleven minutes on two quiet cores.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean, median
from unittest import mock

import msgspec

from bench.batch.report import cells, summary, text_of
from bench.batch.results import (
    CONFIRMING_REPLICATES,
    MOST_STEP_SECONDS,
    SEARCH_SECONDS,
    SHARED_ROUNDS,
    SWEEP_REPLICATES,
    SWEEP_SECONDS,
    Progress,
    is_open,
    rates_of,
    rival_of,
)
from bench.batch.taking_turns import TakingTurns, seconds_per_sample
from bench.pieces import store, stored
from bench.report import command_line, write
from hotlap.api import local_executor
from hotlap.experiment.options import BatchChoices, Options
from hotlap.levers.host import keep_freed_memory
from hotlap.measure.disturbance import disturbances
from hotlap.procedures.batch.changing import Changer, changer_of
from hotlap.procedures.batch.search import search_batch
from hotlap.records import (
    Assignment,
    BatchSearch,
    Isolation,
    Replicate,
    ScriptFacts,
    Stopped,
    TurnRequest,
    Workload,
)
from hotlap.trial.executor import Executor

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Example:
    """``most`` is the largest size of search and sweep, and ``flag`` the option for the batch size of an example whose
    batches come from no DataLoader; it is given, so that its value is known. ``variables`` are its environment's."""

    most: int
    flag: str = ""
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


EXAMPLES: Mapping[str, Example] = {
    "lstm": Example(most=64, variables=keep_freed_memory.VARIABLES),
    "bert": Example(most=64),
    "gpt": Example(most=24, flag="--batch-size", arguments=("--batch-size", "6")),
    "resnet": Example(most=64),
}
"""Up to four times the own batch size: on two cores a step of more samples takes seconds."""

MOST_SIZES = 5

COMPARED_SECONDS = 30.0
"""What a replicate of the comparison is to time. Samples vary in length, so that few steps say little."""

SHARED_BLOCK_STEPS = 12
"""Steps of a block of the larger size; the smaller one takes as many samples."""

MOST_ROUNDS = 200
ROUNDS = 6
BLOCK_STEPS = 2
WARM_UP_SECONDS = 15.0
MOST_SECONDS = 120.0
"""The longest that one replicate may take, start-up and warm-up included."""


def rounds_of(progress: Progress, sizes: Sequence[int]) -> int:
    """The rounds in which these sizes train for so long as a replicate lasts, by what the sweep saw of them."""
    own = progress.search.own if progress.search is not None else 1
    rates = {it.size: it.rate for it in rates_of(progress)}
    seconds = sum(progress.step_seconds * size / own / rates.get(size, 1.0) for size in sizes)
    return max(ROUNDS, min(MOST_ROUNDS, round(COMPARED_SECONDS / (BLOCK_STEPS * seconds)))) if seconds > 0 else ROUNDS


def main(words: list[str]) -> None:
    """Search and sweep every example, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--examples", default=",".join(EXAMPLES), help="names of examples, with commas")
    parser.add_argument("--most", type=int, help="the largest size of search and sweep (default: by example)")
    parser.add_argument("--pieces", type=Path, help="the folder of what is finished (default: nothing is stored)")
    choices = parser.parse_args(words)
    unknown = [it for it in choices.examples.split(",") if it not in EXAMPLES]
    if unknown:
        parser.error(f"there is no example {unknown[0]!r}: choose from {', '.join(EXAMPLES)}")
    found = []
    for name in choices.examples.split(","):
        found.append(_measured(name, choices.most, choices.pieces))
        sys.stderr.write(f"{' | '.join(cells(found[-1]))}\n")
    write(
        choices.out,
        title="The batch size: search against sweep",
        command=command_line("bench.batch"),
        text=text_of(found, [it.script for it in found if EXAMPLES[it.script].variables]),
        data=msgspec.to_builtins([summary(it) for it in found], str_keys=True),
    )


def _measured(name: str, cap: int | None, pieces: Path | None) -> Progress:
    example = EXAMPLES[name]
    most = cap or example.most
    workload = Workload(
        kind="script",
        target=os.fspath(ROOT / "examples" / f"{name}.py"),
        arguments=example.arguments,
        directory=os.fspath(ROOT),
        python=sys.executable,
    )
    piece = pieces / f"{name}-{most}.json" if pieces is not None else None
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, example.variables):
        bench = Bench(
            workload=workload,
            executor=lambda: local_executor(Path(folder), Isolation()),
            choices=BatchChoices(most=most, flag=example.flag),
            progress=stored(piece, Progress) or Progress(script=name),
            store=partial(store, piece),
        )
        return bench.run()


def sizes_around(search: BatchSearch, most: int) -> tuple[int, ...]:
    """The knee, the script's own size, and of its halves and doubles up to ``most`` those nearest to the knee."""
    powers = range(-math.floor(math.log2(search.own)), math.floor(math.log2(max(1.0, most / search.own))) + 1)
    grid = {round(search.own * 2**power) for power in powers} - {search.own, search.knee}
    nearest = sorted(grid, key=lambda it: abs(math.log(it / search.knee)))
    first = {search.own, search.knee}
    return tuple(sorted(first | set(nearest[: MOST_SIZES - len(first)])))


def largest_of(search: BatchSearch, step_seconds: float, cap: int) -> int:
    """The largest size of a sweep: by the cap, by the time of a step, and below what did not fit."""
    by_time = math.floor(search.own * MOST_STEP_SECONDS / step_seconds) if step_seconds > 0 else cap
    by_memory = min((it.batch_size for it in search.rates if it.out_of_memory), default=cap + 1) - 1
    return max(search.knee, min(cap, by_time, by_memory))


def turns_of(workload: Workload, turns: TakingTurns) -> list[dict[int, float]]:
    """One launch of a script in which batch sizes take turns."""
    return seconds_per_sample(workload.python, workload.target, workload.arguments, turns, workload.directory)


@dataclass(kw_only=True)
class Bench:
    """One script: everything that ``progress`` lacks is measured and stored."""

    workload: Workload
    executor: Callable[[], Executor]
    choices: BatchChoices
    progress: Progress
    store: Callable[[Progress], None] = lambda progress: None
    take_turns: Callable[[Workload, TakingTurns], list[dict[int, float]]] = turns_of
    clock: Callable[[], float] = time.monotonic

    def run(self) -> Progress:
        """Search, sweep, compare."""
        if self.progress.search is None and not self.progress.trouble:
            self._search()
        search = self.progress.search
        changer = changer_of(self.workload, self.progress.facts, self.choices.flag)
        if self.progress.trouble or search is None or isinstance(changer, str):
            return self.progress
        timer = _Turns(self.workload, self.executor(), changer)
        self._sweep(timer, sizes_around(search, self._largest(search)))
        rival = rival_of(self.progress)
        while rival and len(self.progress.compared) < CONFIRMING_REPLICATES:
            sizes = (rival, search.knee)
            number = SWEEP_REPLICATES + len(self.progress.compared)
            turns, _ = timer.taken(sizes, number, rounds_of(self.progress, sizes))
            if not _complete(turns):
                self._note(turns, trouble=f"{rival} and {search.knee} could not be compared.")
                break
            one, other = (fmean(map(math.log, it)) for it in turns.rounds)
            self._note(turns, compared=(*self.progress.compared, other - one))
        while is_open(self.progress) and not self.choices.flag:
            rounds = self.take_turns(self.workload, self._taking_turns(rival, search.knee))
            logs = [math.log(it[search.knee] / it[rival]) for it in rounds]
            self._keep(shared=(*self.progress.shared, median(logs)), sweep_launches=self.progress.sweep_launches + 1)
        return self.progress

    def _taking_turns(self, *sizes: int) -> TakingTurns:
        samples = SHARED_BLOCK_STEPS * max(sizes)
        return TakingTurns(sizes=sizes, rounds=SHARED_ROUNDS, samples=samples, seed=len(self.progress.shared))

    def _largest(self, search: BatchSearch) -> int:
        return largest_of(search, self.progress.step_seconds, self.choices.most or search.largest_fitting)

    def _search(self) -> None:
        began = self.clock()
        options = Options(batch=self.choices, budget_seconds=SEARCH_SECONDS)
        study = search_batch(self.workload, options, self.executor(), clock=self.clock)
        search = study.batch_search or BatchSearch(obstacle=study.status_text)
        self._keep(
            search=search,
            facts=study.baseline.facts if study.baseline is not None else ScriptFacts(),
            trouble=search.obstacle or ("" if search.knee else study.status_text or "No size could be timed."),
            step_seconds=study.account_before.wall if study.account_before is not None else 0.0,
            search_seconds=self.clock() - began,
        )

    def _sweep(self, timer: _Turns, sizes: Sequence[int]) -> None:
        own = timer.changer.own
        while len(self.progress.swept) < SWEEP_REPLICATES:
            if self.progress.swept and self.progress.swept_seconds > SWEEP_SECONDS:
                return
            arms = (own, *(it for it in sizes if it != own and it not in self.progress.failed))
            if len(arms) < 2:
                return
            began = self.clock()
            turns, failed = timer.taken(arms, len(self.progress.swept))
            if own in failed or not (failed or _complete(turns)):
                self._note(turns, trouble="The script's own size could not be timed in the sweep.")
                return
            if failed:
                self._note(turns, failed=(*self.progress.failed, *failed))
                continue
            logs = [fmean(map(math.log, it)) for it in turns.rounds]
            gains = {size: logs[0] - log for size, log in zip(arms, logs, strict=True)}
            seconds = self.progress.swept_seconds + self.clock() - began
            self._note(turns, swept=(*self.progress.swept, gains), swept_seconds=seconds)

    def _note(self, turns: Replicate, **found: object) -> None:
        self._keep(
            sweep_launches=self.progress.sweep_launches + len(turns.runs),
            disturbed=self.progress.disturbed + bool(disturbances(turns.runs)),
            **found,
        )

    def _keep(self, **found: object) -> None:
        self.progress = msgspec.structs.replace(self.progress, **found)
        self.store(self.progress)


@dataclass
class _Turns:
    """Replicates of several sizes that are alive at once and take turns."""

    workload: Workload
    executor: Executor
    changer: Changer

    def taken(self, sizes: Sequence[int], number: int, rounds: int = ROUNDS) -> tuple[Replicate, tuple[int, ...]]:
        """A replicate, and the sizes that failed in it."""
        request = TurnRequest(
            arms=tuple(map(self._assignment, sizes)),
            rounds=rounds,
            block_steps=BLOCK_STEPS,
            order_seed=number,
            warm_up_limit_seconds=WARM_UP_SECONDS,
            most_seconds=MOST_SECONDS,
        )
        turns = self.executor.submit(request, self.executor.slots()[0]).result()
        failed = tuple(size for size, run in zip(sizes, turns.runs, strict=True) if not isinstance(run.ending, Stopped))
        return turns, failed

    def _assignment(self, size: int) -> Assignment:
        workload = self.changer.workload(size) or self.workload
        return Assignment(workload=workload, instruments=self.changer.instruments(size))


def _complete(turns: Replicate) -> bool:
    return bool(turns.rounds) and all(turns.rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
