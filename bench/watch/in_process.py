"""The measurement itself, in a process of its own; prints one JSON object.

Two launches of the same code differ by more than watching costs, so the comparison stays within a process. Stretches
are compared by their mean, since what watching costs comes now and then: some steps in a row, and a row each second.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from pathlib import Path

import torch

from bench.overhead.in_process import SETTLING_STEPS, Training
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception
from hotlap.runtime.watch.watcher import RowFile, Watcher


def ratio(kind: str, device: str, turns: int, stretch_seconds: float) -> dict[str, float]:
    """The step with watching as a ratio to the step without: the median of the turns, and the step's seconds."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    interception = Interception(Hooks(torch=torch))
    interception.install()
    with tempfile.TemporaryDirectory() as folder:
        watcher = Watcher(interception, RowFile(Path(folder)))
        training = Training(kind, torch.device(device))
        _mean_step(training, device, stretch_seconds)  # long enough for the watcher to know the length of a step
        logarithms, without = [], []
        for turn in range(turns):
            found = {}
            for watched in (True, False) if turn % 2 else (False, True):
                if watched:
                    interception.resume()
                    watcher.resume()
                else:
                    interception.suspend()
                for _ in range(SETTLING_STEPS):
                    training.step()
                found[watched] = _mean_step(training, device, stretch_seconds)
            logarithms.append(math.log(found[True] / found[False]))
            without.append(found[False])
    return {"ratio": math.exp(statistics.median(logarithms)), "plain_seconds": statistics.median(without)}


def _mean_step(training: Training, device: str, seconds: float) -> float:
    wait = torch.cuda.synchronize if device != "cpu" else (lambda: None)
    wait()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        training.step()
        steps += 1
    wait()
    return (time.perf_counter() - began) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("tiny", "some-layers", "many-layers"), default="tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=16)
    parser.add_argument("--stretch-seconds", type=float, default=1.1, help="long enough for a row")
    arguments = parser.parse_args()
    print(json.dumps(ratio(arguments.kind, arguments.device, arguments.turns, arguments.stretch_seconds)))


if __name__ == "__main__":
    main()
