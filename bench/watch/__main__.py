"""Measure what `hotlap run --watch` costs a run, as a ratio of its steps to those without it.

Launches are the replicates; within each, stretches with and without take turns. The claim to keep: less than 1 %.
With ``--pieces FOLDER`` each launch is stored, and the same command goes on after the last one; a launch takes about
forty seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path

from bench.pieces import piece
from bench.report import command_line, table, write
from hotlap.measure.student import quantile
from hotlap.trial.process import run_module

ALLOWED = 1.01
KINDS = ("tiny", "some-layers", "many-layers")
"""Small layers, whose steps vary little. Those of large matrix products vary by more than is to be shown."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.watch", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--pieces", type=Path, help="where to keep each launch")
    parser.add_argument("--launches", type=int, default=8)
    parser.add_argument("--turns", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    results = [measure(kind, arguments.launches, arguments.turns, arguments.device, arguments.pieces) for kind in KINDS]
    rows = [
        [
            str(it["kind"]),
            f"{float(it['plain_seconds']) * 1e3:.2f} ms",
            f"{it['ratio']:.4f} ({it['low']:.4f} to {it['high']:.4f})",
            f"{(float(it['ratio']) - 1) * float(it['plain_seconds']) * 1e6:.0f} us",
            str(it["kept"]),
        ]
        for it in results
    ]
    text = "A step of a watched run as a ratio to one that is not watched, in turns within a launch: geometric mean\n"
    text += f"over {arguments.launches} launches, 95 % interval.\n\n"
    text += table(["workload", "step without", "ratio", "more per step", "below 1.01"], rows)
    write(
        arguments.out,
        title="Cost of watching a run",
        command=command_line("bench.watch"),
        text=text,
        data={"steps": results},
    )
    print(text)
    return 1 if any(it["kept"] == "no" for it in results) else 0


def measure(kind: str, launches: int, turns: int, device: str, pieces: Path | None) -> dict[str, float | str]:
    """Several launches of one workload."""
    words = ("--kind", kind, "--turns", str(turns), "--device", device)

    def launch() -> dict[str, float]:
        found: dict[str, float] = json.loads(run_module("bench.watch.in_process", words, timeout_seconds=1800))
        return found

    found = [piece(pieces, f"{kind}-{device}-{turns}-{number}", dict[str, float], launch) for number in range(launches)]
    logarithms = [math.log(it["ratio"]) for it in found]
    mean = statistics.mean(logarithms)
    margin = quantile(0.975, launches - 1) * statistics.stdev(logarithms) / math.sqrt(launches)
    low, high = math.exp(mean - margin), math.exp(mean + margin)
    return {
        "kind": kind,
        "plain_seconds": statistics.median(it["plain_seconds"] for it in found),
        "ratio": math.exp(mean),
        "low": low,
        "high": high,
        "kept": "yes" if high <= ALLOWED else "no" if low > ALLOWED else "undecided",
    }


if __name__ == "__main__":
    sys.exit(main())
