"""``python -m bench.device_lines --out docs/benchmarks/device-lines``: which lines tests ran, and on which device.

Runs the tests of the CPU and those of the simulated device with probes in all of hotlap's functions, in every process.
The report says where each lever, rule, collector of evidence, phase and ceiling ran, and which of the lines that run
only with an accelerator did. Nothing is timed. What ran on real hardware is taken from the results of benchmarks there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from simulated.environment import simulated_device
from simulated.library import NoCompiler

from bench.device_lines import report
from bench.device_lines.branches import device_lines, lines_elsewhere
from bench.device_lines.hardware import found_on_simulated, ran_on_hardware
from bench.device_lines.named import ELSEWHERE
from bench.device_lines.parts import CEILINGS, Ran, parts
from bench.device_lines.pieces import Pieces
from bench.device_lines.runs import BUILD, CPU, ROOT, RUNS, SIMULATED, Tracer, files_of
from bench.report import command_line, write
from hotlap.records import MeasuredRates

RESULTS = ROOT / "docs" / "benchmarks"


def main(arguments: list[str] | None = None) -> int:
    """Trace every file of tests that ``--pieces`` does not have yet, and write the table."""
    options = _parser().parse_args(arguments)
    options.pieces.mkdir(parents=True, exist_ok=True)
    try:
        tracer = None if options.kept else Tracer(options.pieces / "code")
        told = {name: _told(options.pieces / name, name, tracer, options.processes) for name in options.only}
        if set(told) != set(RUNS):
            return 0
        ceilings = {where: _ceilings(options.pieces / f"ceilings-{where}.json", where) for where in (CPU, SIMULATED)}
    except NoCompiler as error:
        sys.stderr.write(f"{error}\n")
        return 2
    ran = {
        where: _together([told[name][0] for name, run in RUNS.items() if run.where == where])
        for where in (CPU, SIMULATED)
    }
    rows, files = _rows(ran, ceilings), _files(ran)
    untold = [it for _, missing in told.values() for it in missing]
    write(
        options.out,
        title="Where everything ran",
        command=command_line("bench.device_lines"),
        text=report.markdown(rows, files, _elsewhere(ran), untold),
        data={
            "parts": [msgspec.to_builtins(it) for it in rows],
            "lines": [msgspec.to_builtins(it) for it in files],
            "untold": untold,
        },
    )
    sys.stderr.write(report.missing(files))
    return 0 if all(it.ran for it in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.device_lines", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument(
        "--pieces",
        type=Path,
        default=ROOT / "build" / "device-lines",
        help="keep the lines of each file of tests in this folder; an interrupted run goes on there",
    )
    parser.add_argument(
        "--only", nargs="+", default=list(RUNS), choices=list(RUNS), help="trace these runs, and write no table"
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        help="files that run at once (default: one a core)",
    )
    parser.add_argument(
        "--kept", action="store_true", help="trace nothing: write the table of what is kept, and what it lacks"
    )
    return parser


def _told(folder: Path, name: str, tracer: Tracer | None, processes: int) -> tuple[Ran, list[str]]:
    """The lines of one run, and the files of tests whose lines do not count: they fail, or were not traced."""
    files, pieces = files_of(RUNS[name]), Pieces(folder, ROOT)
    found = (
        [pieces.kept(it) for it in files]
        if tracer is None
        else list(pieces.complete(files, lambda tests: tracer.trace(RUNS[name], tests), processes))
    )
    missing = [tests for tests, it in zip(files, found, strict=True) if it is None or not it.passed]
    for it in missing:
        sys.stderr.write(f"{it}: not traced, or it failed. Its lines do not count.\n")
    passed = [it for it in found if it is not None and it.passed]
    return _together([{file: set(lines) for file, lines in it.lines.items()} for it in passed]), missing


def _rows(ran: dict[str, Ran], ceilings: dict[str, set[str]]) -> list[report.Row]:
    known = parts()
    hardware, planted = ran_on_hardware(RESULTS, known), found_on_simulated(RESULTS)
    places = {
        (it.kind, it.name): (it.ran(ran[CPU]), it.ran(ran[SIMULATED]) or (it.kind, it.name) in planted) for it in known
    }
    places |= {("ceiling", it): (it in ceilings[CPU], it in ceilings[SIMULATED]) for it in CEILINGS}
    return [report.Row(*it, *where, hardware=it in hardware) for it, where in places.items()]


def _files(ran: dict[str, Ran]) -> list[report.File]:
    return [
        report.File(
            file,
            sorted(of_file),
            sorted(of_file & ran[SIMULATED].get(file, set())),
            sorted(of_file & ran[CPU].get(file, set())),
        )
        for file, of_file in sorted(device_lines().items())
    ]


def _elsewhere(ran: dict[str, Ran]) -> list[report.Elsewhere]:
    return [
        report.Elsewhere(
            file, name, ELSEWHERE[file][name], len(lines), len(lines & _together(list(ran.values())).get(file, set()))
        )
        for (file, name), lines in lines_elsewhere().items()
    ]


def _ceilings(kept: Path, where: str) -> set[str]:
    """Which rates the test of ceilings measures there."""
    if not kept.exists():
        with tempfile.TemporaryDirectory(prefix="simulated-") as folder:
            variables = simulated_device("a100", Path(folder), BUILD).variables if where == SIMULATED else {}
            device = "cuda" if where == SIMULATED else "cpu"
            path = os.pathsep.join([variables.get("PYTHONPATH", ""), str(ROOT / "src")])
            printed = subprocess.run(
                [sys.executable, "-m", "hotlap.machine.ceilings", "--device", device],
                env={**os.environ, **variables, "PYTHONPATH": path},
                stdout=subprocess.PIPE,
                check=True,
            )
        kept.write_bytes(printed.stdout)
    found = msgspec.json.decode(kept.read_bytes(), type=MeasuredRates).ceilings
    return {it for it in CEILINGS if getattr(found, it)}


def _together(told: list[Ran]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for one in told:
        for file, lines in one.items():
            found.setdefault(file, set()).update(lines)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
