"""``python -m bench.device_lines --out docs/benchmarks/device-lines``: which lines tests ran, and on which device.

Runs the tests of the CPU and those of the simulated device with all their processes traced, line by line. The report
says where each lever, rule, collector of evidence, phase and ceiling ran, and which of the lines that run only with an
accelerator did. Nothing is timed. What ran on real hardware is taken from the results of benchmarks there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from simulated.environment import SITE, simulated_device
from simulated.library import NoCompiler

from bench.device_lines import report
from bench.device_lines.branches import device_lines
from bench.device_lines.hardware import ran_on_hardware
from bench.device_lines.listener import Listener
from bench.device_lines.parts import CEILINGS, Ran, parts
from bench.device_lines.pieces import Pieces, files_of_tests
from bench.report import command_line, write
from hotlap.records import MeasuredRates

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "simulated"
RESULTS = ROOT / "docs" / "benchmarks"

CPU, SIMULATED = "cpu", "simulated"
RUNS: dict[str, tuple[str, bool, tuple[str, ...], tuple[str, ...]]] = {
    "hardware": (SIMULATED, True, ("-m", "gpu"), ("tests/gpu",)),
    "own": (SIMULATED, False, ("-m", "slow or not slow"), ("tests/on_device",)),
    "rooms": (CPU, False, (), tuple(f"tests/{it}" for it in ("levers", "diagnose", "runtime", "machine"))),
    "trials": (CPU, False, (), ("tests/trial", "tests/procedures", "tests/measure")),
}
"""Where it runs, whether the tests' own process has the device, pytest's options and the folders of tests."""
_NO_TESTS = 5
"""pytest's exit code where a file has no test that these options select."""


def main(arguments: list[str] | None = None) -> int:
    """Trace every file of tests that ``--pieces`` does not have yet, and write the table."""
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
    options = parser.parse_args(arguments)
    options.pieces.mkdir(parents=True, exist_ok=True)
    try:
        told = {name: _told(options.pieces / name, name) for name in options.only}
        if set(told) != set(RUNS):
            return 0
        ceilings = {where: _ceilings(options.pieces / f"ceilings-{where}.json", where) for where in (CPU, SIMULATED)}
    except NoCompiler as error:
        sys.stderr.write(f"{error}\n")
        return 2
    ran = {
        where: _together([told[name] for name, run in RUNS.items() if run[0] == where]) for where in (CPU, SIMULATED)
    }
    known = parts()
    on_hardware = ran_on_hardware(RESULTS, known)
    places = {(it.kind, it.name): (it.ran(ran[CPU]), it.ran(ran[SIMULATED])) for it in known}
    places |= {("ceiling", it): (it in ceilings[CPU], it in ceilings[SIMULATED]) for it in CEILINGS}
    rows = [report.Row(*it, *where, hardware=it in on_hardware) for it, where in places.items()]
    lines = [
        report.File(file, sorted(of_file), sorted(of_file & ran[SIMULATED].get(file, set())),
                    sorted(of_file & ran[CPU].get(file, set())))
        for file, of_file in sorted(device_lines().items())
    ]  # fmt: skip
    write(
        options.out,
        title="Where everything ran",
        command=command_line("bench.device_lines"),
        text=report.markdown(rows, lines),
        data={"parts": [msgspec.to_builtins(it) for it in rows], "lines": [msgspec.to_builtins(it) for it in lines]},
    )
    sys.stderr.write(report.missing(lines))
    return 0 if all(it.ran for it in rows) else 1


def _told(folder: Path, name: str) -> Ran:
    """The lines of one run. Files of tests that fail are named, and their lines do not count."""
    files = files_of_tests(ROOT, RUNS[name][3])
    pieces = list(Pieces(folder, ROOT).complete(files, lambda tests: _traced(tests, name)))
    for it in pieces:
        if not it.passed:
            sys.stderr.write(f"{it.tests} fails: its lines do not count, and it is traced again next time.\n")
    return _together([{file: set(lines) for file, lines in it.lines.items()} for it in pieces if it.passed])


def _traced(tests: str, name: str) -> tuple[bool, Ran]:
    _, has_device, options, _ = RUNS[name]
    with Listener() as listener, tempfile.TemporaryDirectory(prefix="simulated-") as folder:
        variables = simulated_device("a100", Path(folder), BUILD).variables if has_device else {}
        path = os.pathsep.join(
            [*([] if has_device else [str(SITE)]), variables.get("PYTHONPATH", ""), str(ROOT / "src")]
        )
        environment = {**os.environ, **variables, **listener.variables, "PYTHONPATH": path}
        command = [sys.executable, "-m", "pytest", "-q", *options, tests]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    return done.returncode in (0, _NO_TESTS), listener.ran


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
