"""Train a script with two batch sizes that take turns within one launch: seconds per sample of each, round by round.

The first DataLoader that the script iterates over gives batches of one size for a block of steps, then of the other, in
random order, without an end of its epoch. Steps right after a change do not count. What is constant in a launch, such
as where its memory lies, is the same for both sizes; what changes within seconds meets both.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SETTLING_STEPS = 2


@dataclass(kw_only=True)
class TakingTurns:
    """``rounds`` rounds of a block of each size; a block has about ``samples`` samples that count."""

    sizes: Sequence[int]
    rounds: int
    samples: int
    seed: int
    seconds_per_sample: list[dict[int, float]] = field(default_factory=list)

    def batches(self, loader: Any) -> Iterator[Any]:
        """Batches of all rounds, from the data set of this DataLoader."""
        order = random.Random(self.seed)
        endless = {it: _endless(loader, it) for it in self.sizes}
        for _ in range(self.rounds):
            seconds: dict[int, float] = {}
            for size in order.sample(list(self.sizes), len(self.sizes)):
                steps = max(1, round(self.samples / size))
                for _ in range(SETTLING_STEPS):
                    yield next(endless[size])
                began = time.perf_counter()
                for _ in range(steps):
                    yield next(endless[size])
                # The script asks for another batch once the last step is over.
                seconds[size] = (time.perf_counter() - began) / (steps * size)
            self.seconds_per_sample.append(seconds)


def _endless(loader: Any, size: int) -> Iterator[Any]:
    from torch.utils.data import DataLoader

    while True:
        yield from DataLoader(
            loader.dataset, batch_size=size, shuffle=True, drop_last=True, collate_fn=loader.collate_fn
        )


def seconds_per_sample(
    python: str, script: str, arguments: Sequence[str], turns: TakingTurns, directory: str
) -> list[dict[int, float]]:
    """One launch. Raises ``subprocess.CalledProcessError`` where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "seconds.json"
        options = [
            *("--sizes", ",".join(map(str, turns.sizes)), "--rounds", str(turns.rounds)),
            *("--samples", str(turns.samples), "--seed", str(turns.seed), "--out", os.fspath(out)),
        ]
        command = [python, __file__, *options, script, *arguments]
        subprocess.run(command, check=True, cwd=directory, stdout=subprocess.DEVNULL)
        return [{int(size): it for size, it in row.items()} for row in json.loads(out.read_text(encoding="utf-8"))]


def main() -> None:
    """Run the script until all rounds are over."""
    from torch.utils.data import DataLoader

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=lambda text: [int(it) for it in text.split(",")], required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    turns = TakingTurns(sizes=options.sizes, rounds=options.rounds, samples=options.samples, seed=options.seed)

    usual = DataLoader.__iter__

    def batches(loader: Any) -> Iterator[Any]:
        DataLoader.__iter__ = usual  # type: ignore[method-assign]
        yield from turns.batches(loader)
        options.out.write_text(json.dumps(turns.seconds_per_sample), encoding="utf-8")
        raise SystemExit

    DataLoader.__iter__ = batches  # type: ignore[method-assign,assignment]
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = os.fspath(Path(options.script).parent)
    runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
