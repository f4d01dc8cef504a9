"""``python -m bench.aa --out docs/benchmarks/aa`` simulates; ``--real train.py`` measures this machine too."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.aa import real, report
from bench.aa.noise import SCENARIOS
from bench.aa.procedure import LAST_ANALYSIS, ROUNDS, Tally, simulate, simulate_family
from bench.report import write
from hotlap.measure.speed import DELTA


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.aa", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--studies", type=int, default=2000, help="simulated studies per cell (0: none)")
    parser.add_argument("--speedups", type=float, nargs="*", default=[1.01, 1.02, 1.03, 1.05, 1.10, 1 / 1.05])
    parser.add_argument("--family", type=int, default=5, help="members of the simulated family")
    parser.add_argument("--delta", type=float, default=DELTA, help="smallest gain worth having, as a share")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--real", type=Path, metavar="SCRIPT", help="take real replicates of this script")
    parser.add_argument("--replicates", type=int, default=2 * LAST_ANALYSIS, help="real replicates to take")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds in a real replicate")
    parser.add_argument("--resamples", type=int, default=2000, help="studies drawn from the real replicates")
    parser.add_argument("script_arguments", nargs="*", help="arguments of the script, after --")
    options = parser.parse_args(arguments)
    if options.real and options.replicates < LAST_ANALYSIS:
        parser.error(f"--replicates must be at least {LAST_ANALYSIS}")
    return options


def run_simulation(options: argparse.Namespace) -> list[Tally]:
    """All scenarios with no effect, with each effect, and as a family."""
    tallies: list[Tally] = []
    for scenario in SCENARIOS if options.studies else ():
        common: dict[str, Any] = {"studies": options.studies, "seed": options.seed, "delta": options.delta}
        for speedup in (1.0, *options.speedups):
            tallies += simulate(scenario, speedup=speedup, **common)
        tallies.append(simulate_family(scenario, members=options.family, **common))
        print(f"simulated: {scenario.name}", file=sys.stderr)
    return tallies


def run_real(options: argparse.Namespace) -> list[Tally]:
    """Real replicates of the script, its baseline in all three roles."""
    from hotlap.trial.local import LocalExecutor

    with tempfile.TemporaryDirectory(prefix="hotlap-aa-") as folder:
        arms = real.measure(
            LocalExecutor(Path(folder)),
            real.workload(options.real, tuple(options.script_arguments)),
            replicates=options.replicates,
            rounds=options.rounds,
            progress=lambda done: print(f"replicate {done} of {options.replicates}", file=sys.stderr),
        )
    return real.studies_of(arms, resamples=options.resamples, seed=options.seed, delta=options.delta)


def main(arguments: list[str] | None = None) -> int:
    """Simulate, measure if requested, and write the report."""
    options = parse(arguments)
    began = time.monotonic()
    simulated = run_simulation(options)
    try:
        measured = run_real(options) if options.real else []
    except real.SetFailed as error:
        print(error, file=sys.stderr)
        return 1
    settings: dict[str, object] = {
        "seed": options.seed,
        "smallest gain worth having": f"{options.delta:.1%}",
        "seconds": round(time.monotonic() - began),
    }
    text = report.markdown(simulated, measured, settings)
    data = {
        "settings": settings,
        "simulated": [asdict(it) for it in simulated],
        "real": [asdict(it) for it in measured],
    }
    title = "False alarms and power of the measuring procedure"
    command = shlex.join(["python", "-m", "bench.aa", *(sys.argv[1:] if arguments is None else arguments)])
    write(options.out, title=title, command=command, text=text, data=data)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
