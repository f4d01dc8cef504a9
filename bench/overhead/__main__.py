"""Measure the cost of hotlap's hooks per training step.

Within each launch of a real trial, stretches of steps with the hooks and stretches without take turns; the launches
are the replicates. The claim to keep: at most 1 % of the step or 25 microseconds, whichever is larger.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path

from bench.report import command_line, table, write
from hotlap.measure.student import quantile
from hotlap.records import Assignment, Completed, LaunchRequest, Workload
from hotlap.trial.local import LocalExecutor
from hotlap.trial.process import run_module

SCRIPT = Path(__file__).with_name("in_process.py")
ALLOWED_SECONDS = 25e-6
ALLOWED_SHARE = 0.01
ALLOWED_IMPORT_SECONDS = 0.05


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--launches", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    results = [measure(kind, arguments.launches, arguments.device) for kind in ("tiny", "medium", "many-layers")]
    rows = [
        [
            str(it["kind"]),
            f"{it['plain_seconds'] * 1e6:.0f} µs",
            f"{it['cost_seconds'] * 1e6:+.1f} µs ({it['low_seconds'] * 1e6:+.1f} to {it['high_seconds'] * 1e6:+.1f})",
            f"{it['allowed_seconds'] * 1e6:.0f} µs",
            str(it["kept"]),
        ]
        for it in results
    ]
    imports = [import_seconds() for _ in range(arguments.launches)]
    text = "The step with and without hotlap's hooks, in turns; mean difference over launches, 95 % interval.\n\n"
    text += table(["workload", "step without", "cost of the hooks", "allowed", "kept"], rows)
    text += f"\n\nImporting and installing the hooks beyond torch: {1e3 * statistics.median(imports):.0f} ms "
    text += f"(median of {len(imports)} processes; allowed: {1e3 * ALLOWED_IMPORT_SECONDS:.0f} ms)."
    write(
        arguments.out,
        title="Cost of the step clock",
        command=command_line("bench.overhead"),
        text=text,
        data={"steps": results, "import_seconds": imports},
    )
    print(text)
    quick_import = statistics.median(imports) <= ALLOWED_IMPORT_SECONDS
    return 0 if quick_import and all(it["kept"] != "no" for it in results) else 1


def measure(kind: str, launches: int, device: str) -> dict[str, float | str]:
    """Several launches of one workload; a launch is the replicate."""
    found = [launch(kind, device) for _ in range(launches)]
    costs = [it["cost_seconds"] for it in found]
    mean = statistics.mean(costs)
    margin = quantile(0.975, launches - 1) * statistics.stdev(costs) / math.sqrt(launches)
    step_seconds = statistics.median(it["plain_seconds"] for it in found)
    allowed = max(ALLOWED_SECONDS, ALLOWED_SHARE * step_seconds)
    return {
        "kind": kind,
        "plain_seconds": step_seconds,
        "cost_seconds": mean,
        "low_seconds": mean - margin,
        "high_seconds": mean + margin,
        "allowed_seconds": allowed,
        "kept": _kept(mean - margin, mean + margin, allowed),
    }


def _kept(low: float, high: float, allowed: float) -> str:
    if high <= allowed:
        return "yes"
    return "no" if low > allowed else "undecided"


def import_seconds() -> float:
    """The seconds that a fresh process needs to install the hooks once torch is imported."""
    return float(run_module("bench.overhead.imports", timeout_seconds=120))


def launch(kind: str, device: str) -> dict[str, float]:
    """One trial in which the script itself takes the hooks away and puts them back."""
    with tempfile.TemporaryDirectory() as folder:
        workload = Workload(
            kind="script",
            target=str(SCRIPT),
            arguments=("--kind", kind, "--device", device),
            directory=str(SCRIPT.parents[2]),
            python=sys.executable,
        )
        request = LaunchRequest(assignment=Assignment(workload=workload), steps=10**9)
        run = LocalExecutor(Path(folder)).launch(request)
        output = Path(run.output_path).read_text(encoding="utf-8")
        if not isinstance(run.ending, Completed):
            raise SystemExit(f"The measurement failed: {run.ending}\n{output}")
        result: dict[str, float] = json.loads(output.strip().splitlines()[-1])
        return result


if __name__ == "__main__":
    sys.exit(main())
