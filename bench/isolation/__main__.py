"""Measure what isolation costs: how much later a launch begins, and how much longer a step takes.

The start is that of ``/bin/true``, by itself and through the launcher, in turns. Steps are compared as a search
compares levers: fresh launches of a script without isolation and with it, block by block in random order;
eight replicates.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.report import command_line, table, write
from hotlap.measure.speed import compare
from hotlap.measure.student import quantile
from hotlap.records import (
    Assignment,
    Completed,
    Isolation,
    ProtectionMode,
    SpeedComparison,
    Stopped,
    TurnRequest,
    Workload,
)
from hotlap.sandbox.order import NONE, Order
from hotlap.trial import command, turns
from hotlap.trial.child import Child
from hotlap.trial.isolating import PROTECTION_VARIABLE, Isolator
from hotlap.trial.process import OwnedProcess

SCRIPTS = sorted((Path(__file__).parent / "workloads").glob("*.py"))
MODES: tuple[ProtectionMode, ...] = ("namespaces", "fence")
CONFIDENCE = 0.95
_SAMPLES, _SAMPLE_BYTES = 4096, 4096


class NotIsolated(Isolator):
    """Start a script without isolation: nothing is redirected and nothing is forbidden."""

    def order(self, command: Sequence[str], directory: str, run_directory: Path, folder: Path) -> Order:
        return Order(command=list(command), directory=directory, mode=NONE)

    def layers_of(self, run_directory: Path, folder: Path) -> Path | None:
        return None

    def variables(self, folder: Path) -> dict[str, str]:
        return {PROTECTION_VARIABLE: "namespaces"}  # so that the runtime redirects nothing either


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.isolation", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--starts", type=int, default=100, help="starts without isolation and in each mode")
    parser.add_argument("--replicates", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=8, help="timing rounds per replicate")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES, help="whose steps are measured")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hotlap-bench-") as folder:
        starts = measure_starts(Path(folder), arguments.starts)
        steps = [row for script in SCRIPTS for row in measure_steps(script, Path(folder), arguments)]
    text = "How much later `/bin/true` has ended when the launcher starts it; paired, in turns.\n\n"
    text += table(
        ["mode", "median", f"95 % interval of the mean ({arguments.starts} pairs)"],
        [[it["mode"], f"{it['median_ms']:.1f} ms", f"{it['low_ms']:.1f} to {it['high_ms']:.1f} ms"] for it in starts],
    )
    text += "\n\nHow fast a script trains in isolation, against itself without: above 1x is faster.\n\n"
    text += table(
        ["script", "mode", "speed", "95 % interval", "smallest detectable effect", "verdict"],
        [
            [
                it["script"], it["mode"], f"{it['speedup']:.3f}x", f"{it['low']:.3f} to {it['high']:.3f}",
                f"{it['detectable']:.1%}", it["verdict"],
            ]
            for it in steps
        ],
    )  # fmt: skip
    write(
        arguments.out,
        title="Cost of isolation",
        command=command_line("bench.isolation"),
        text=text,
        data={"starts": starts, "steps": steps},
    )
    print(text)
    return 0


def measure_starts(folder: Path, pairs: int) -> list[dict[str, float | str]]:
    isolators = {mode: Isolator(Isolation(mode=mode), folder / "starts", {}) for mode in MODES}
    later: dict[str, list[float]] = {mode: [] for mode in MODES}
    for isolator in isolators.values():
        isolated_seconds(isolator, folder)  # the choice of the way is made once
    for _ in range(pairs):
        for mode, isolator in isolators.items():
            began = time.perf_counter()
            subprocess.run(["/bin/true"], check=True)
            alone = time.perf_counter() - began
            later[mode].append(isolated_seconds(isolator, folder) - alone)
    return [_start(mode, found) for mode, found in later.items()]


def isolated_seconds(isolator: Isolator, folder: Path) -> float:
    """From the start of the launcher until it has ended, as the command ended."""
    process = OwnedProcess()
    run_directory = Path(tempfile.mkdtemp(dir=folder))
    order = isolator.order(["/bin/true"], str(folder), run_directory, process.folder)
    try:
        began = time.perf_counter()
        process.start(
            order.command, directory=str(folder), environment=os.environ, output=run_directory / "output", order=order
        )
        while not process.exited():
            time.sleep(0.0005)
        seconds = time.perf_counter() - began
    finally:
        status = process.kill()
        shutil.rmtree(run_directory, ignore_errors=True)
    if status != 0:
        raise SystemExit("The launcher failed.")
    return seconds


def _start(mode: str, later: Sequence[float]) -> dict[str, float | str]:
    mean = statistics.mean(later)
    margin = quantile(0.5 + CONFIDENCE / 2, len(later) - 1) * statistics.stdev(later) / len(later) ** 0.5
    return {
        "mode": mode,
        "median_ms": 1e3 * statistics.median(later),
        "low_ms": 1e3 * (mean - margin),
        "high_ms": 1e3 * (mean + margin),
    }


def measure_steps(script: Path, folder: Path, choices: argparse.Namespace) -> list[dict[str, float | str]]:
    """Replicates of the script without isolation, again without, and in each mode."""
    project = Path(tempfile.mkdtemp(prefix="project-", dir=folder))
    (project / "samples").mkdir()
    for number in range(_SAMPLES):
        (project / "samples" / f"{number:05d}.bin").write_bytes(os.urandom(_SAMPLE_BYTES))
    shutil.copy(script, project)
    workload = Workload(kind="script", target=script.name, directory=str(project), python=sys.executable)
    assignment = Assignment(workload=workload)
    runs = folder / script.stem
    plain = NotIsolated(Isolation(), runs, {})
    isolators = [plain, plain, *(Isolator(Isolation(mode=mode), runs, {}) for mode in choices.modes)]
    rows = [_set(assignment, isolators, runs, seed, choices.rounds) for seed in range(choices.replicates)]
    baseline, repeat, *isolated = ([row[arm] for row in rows] for arm in range(len(isolators)))
    pairs = zip(choices.modes, isolated, strict=True)
    return [_step(script, mode, compare(baseline, repeat, it)) for mode, it in pairs]


def _step(script: Path, mode: str, found: SpeedComparison) -> dict[str, float | str]:
    print(f"{script.stem} {mode}: {found.speedup.value:.3f}x", file=sys.stderr)
    return {
        "script": script.stem,
        "mode": mode,
        "speedup": found.speedup.value,
        "low": found.speedup.low,
        "high": found.speedup.high,
        "detectable": found.smallest_detectable,
        "verdict": found.verdict,
    }


def _set(
    assignment: Assignment, isolators: Sequence[Isolator], runs: Path, seed: int, rounds_wanted: int
) -> turns.Rounds:
    request = TurnRequest(arms=(assignment,) * len(isolators), rounds=rounds_wanted, order_seed=seed)
    environment: Mapping[str, str] = command.environment_of(assignment, {})
    with ExitStack() as stack:
        children = [
            stack.enter_context(Child(assignment, command.new_run_directory(runs), dict(environment), isolator))
            for isolator in isolators
        ]
        found, rounds = turns.take_turns(children, request)
    if not all(isinstance(it.ending, (Completed, Stopped)) for it in found):
        raise SystemExit(f"A launch failed: {[it.ending for it in found]}")
    return rounds


if __name__ == "__main__":
    sys.exit(main())
