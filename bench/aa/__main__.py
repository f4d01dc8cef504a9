"""``python -m bench.aa --out docs/benchmarks/aa`` simulates; ``--real train.py`` measures this machine too.

With ``--pieces FOLDER`` every finished part is stored, and the same command goes on after it. A scenario of the
procedure takes about 20 s, the searches of a scenario and procedure about 25 s where nothing helps, and a real
replicate 15 to 30 s with a script that starts in a few seconds. ``--real-searches N`` runs whole searches in real
launches, with levers that change nothing, each for at most ``--budget`` minutes; one that was cut goes on where it was.
``--keep`` takes from ``OUT.json`` the parts that are not run now, and says which these are.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.aa import placebos, real, report
from bench.aa.noise import SCENARIOS, Scenario
from bench.aa.placebos import Placebo
from bench.aa.procedure import LAST_ANALYSIS, ROUNDS, Tally, simulate, simulate_family
from bench.aa.searches import Cell, Searches, cells
from bench.pieces import UNFINISHED, TimeIsUp, add_options, check_time, piece, until_of
from bench.report import write
from hotlap.measure.speed import DELTA


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.aa", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--studies", type=int, default=2000, help="simulated studies per cell (0: none)")
    parser.add_argument("--searches", type=int, default=200, help="simulated searches per row (0: none)")
    parser.add_argument("--speedups", type=float, nargs="*", default=[1.01, 1.02, 1.03, 1.05, 1.10, 1 / 1.05])
    parser.add_argument("--family", type=int, default=5, help="members of the simulated family")
    parser.add_argument("--delta", type=float, default=DELTA, help="smallest gain worth having, as a share")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--real", type=Path, metavar="SCRIPT", help="take real replicates of this script")
    parser.add_argument("--replicates", type=int, default=2 * LAST_ANALYSIS, help="real replicates to take")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds in a real replicate")
    parser.add_argument("--real-searches", type=int, default=0, help="whole searches in real launches (default: none)")
    parser.add_argument("--budget", type=float, default=5.0, help="minutes for each of them (default: 5)")
    parser.add_argument("--resamples", type=int, default=2000, help="studies drawn from the real replicates")
    parser.add_argument("--keep", action="store_true", help="keep the parts of OUT that are not run now")
    add_options(parser)
    parser.add_argument("script_arguments", nargs="*", help="arguments of the script, after --")
    options = parser.parse_args(arguments)
    if options.real and options.replicates < LAST_ANALYSIS:
        parser.error(f"--replicates must be at least {LAST_ANALYSIS}")
    return options


def run_simulation(options: argparse.Namespace, until: float | None = None) -> list[Tally]:
    """All scenarios with no effect, with each effect, and as a family."""
    tallies: list[Tally] = []
    words = [options.studies, options.seed, options.delta, options.family, *options.speedups]
    for scenario in SCENARIOS if options.studies else ():
        name = "-".join(["procedure", scenario.name.replace(" ", "-").replace("%", "percent"), *map(str, words)])
        tallies += piece(options.pieces, name, list[Tally], partial(_simulated, scenario, options, until))
        print(f"simulated: {scenario.name}", file=sys.stderr)
    return tallies


def _simulated(scenario: Scenario, options: argparse.Namespace, until: float | None) -> list[Tally]:
    check_time(until)
    common: dict[str, Any] = {"studies": options.studies, "seed": options.seed, "delta": options.delta}
    tallies = [it for speedup in (1.0, *options.speedups) for it in simulate(scenario, speedup=speedup, **common)]
    return [*tallies, simulate_family(scenario, members=options.family, **common)]


def run_searches(options: argparse.Namespace, until: float | None = None) -> list[Searches]:
    """Whole searches by arithmetic, where nothing helps and where one lever does."""

    def run(cell: Cell) -> Searches:
        check_time(until)
        return cell.run()

    found = []
    for cell in cells(options.searches, options.seed) if options.searches else ():
        found.append(piece(options.pieces, cell.name, Searches, partial(run, cell)))
        print(f"searched: {cell.name}, {found[-1].plans} of {cell.studies} with a plan", file=sys.stderr)
    return found


def run_real(options: argparse.Namespace, until: float | None = None) -> list[Tally]:
    """Real replicates of the script, its baseline in all three roles."""
    from hotlap.trial.local import LocalExecutor

    with tempfile.TemporaryDirectory(prefix="hotlap-aa-") as folder:
        arms = real.measure(
            LocalExecutor(Path(folder)),
            real.workload(options.real, tuple(options.script_arguments)),
            replicates=options.replicates,
            rounds=options.rounds,
            progress=lambda done: print(f"replicate {done} of {options.replicates}", file=sys.stderr),
            pieces=options.pieces,
            until=until,
        )
    return real.studies_of(arms, resamples=options.resamples, seed=options.seed, delta=options.delta)


def run_real_searches(options: argparse.Namespace, until: float | None = None) -> list[Placebo]:
    """Whole searches in real launches."""
    found = []
    with tempfile.TemporaryDirectory(prefix="hotlap-aa-") as folder:
        home = options.pieces.resolve() if options.pieces else Path(folder)
        for number in range(options.real_searches):
            name = f"real-search-{options.budget:g}-{number + 1}"
            run = partial(placebos.searched, number, 60 * options.budget, home / "real-searches" / name, until)
            found.append(piece(options.pieces, name, Placebo, run))
    return found


class Parts(msgspec.Struct, kw_only=True, frozen=True):
    """Everything that the report shows. ``origins`` has the date and the machine of the parts that were kept."""

    searches: list[Searches]
    simulated: list[Tally]
    real_searches: list[Placebo]
    real: list[Tally]
    origins: dict[str, str] = {}


class Written(msgspec.Struct, kw_only=True, frozen=True):
    """What an earlier run wrote."""

    date: str
    machine: str
    data: Parts


def completed(parts: Parts, path: Path) -> tuple[Parts, str]:
    """These parts, those that are empty from earlier runs, and sentences that say which; no sentence if none is.

    Raises :class:`OSError` and :class:`msgspec.DecodeError` where nothing was written.
    """
    before = msgspec.json.decode(path.read_bytes(), type=Written)
    empty = [it for it in report.TITLES if not getattr(parts, it) and getattr(before.data, it)]
    origins = {it: before.data.origins.get(it, f"{before.date}, {before.machine}") for it in empty}
    names = {
        origin: ", ".join(report.TITLES[it] for it in empty if origins[it] == origin) for origin in origins.values()
    }
    sentences = " ".join(f"By an earlier run ({origin}): {name}." for origin, name in names.items())
    kept = {it: getattr(before.data, it) for it in empty}
    return msgspec.structs.replace(parts, origins=origins, **kept), sentences


def main(arguments: list[str] | None = None) -> int:
    """Simulate, measure if requested, and write the report."""
    options = parse(arguments)
    until = until_of(options)
    try:
        simulated, searches = run_simulation(options, until), run_searches(options, until)
        measured = run_real(options, until) if options.real else []
        real_searches = run_real_searches(options, until)
    except TimeIsUp:
        print("Not finished; the same command goes on.", file=sys.stderr)
        return UNFINISHED
    except real.SetFailed as error:
        print(error, file=sys.stderr)
        return 1
    parts = Parts(searches=searches, simulated=simulated, real_searches=real_searches, real=measured)
    kept = ""
    if options.keep:
        parts, kept = completed(parts, options.out.with_suffix(".json"))
    settings: dict[str, object] = {
        "seed": options.seed,
        "smallest gain worth having": f"{options.delta:.1%}",
    }
    text = report.markdown(parts.simulated, parts.real, settings, parts.searches, parts.real_searches, kept=kept)
    data = {"settings": settings, **msgspec.to_builtins(parts)}
    title = "False alarms and power of the measuring procedure"
    command = shlex.join(["python", "-m", "bench.aa", *(sys.argv[1:] if arguments is None else arguments)])
    write(options.out, title=title, command=command, text=text, data=data)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
