"""The tests that are traced, where they run, and how."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from simulated.environment import SITE, simulated_device
from simulated.lines import CODE, compile_all

from bench.device_lines.branches import SOURCES
from bench.device_lines.listener import Listener
from bench.device_lines.parts import Ran
from bench.device_lines.pieces import files_of_tests

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "simulated"

CPU, SIMULATED = "cpu", "simulated"
_NO_TESTS = 5
"""pytest's exit code where a file has no test that these options select."""


@dataclass(frozen=True, slots=True)
class TracedRun:
    """Files of tests below ``folders``, where a file may stand for a folder, that ``mention`` something, with pytest's
    ``options``. The tests' own process has the device if ``has_device``; others start theirs with it."""

    where: str
    folders: tuple[str, ...]
    options: tuple[str, ...] = ()
    has_device: bool = False
    mention: str = ""


RUNS = {
    "hardware": TracedRun(SIMULATED, ("tests/gpu",), ("-m", "gpu"), has_device=True),
    "own": TracedRun(SIMULATED, ("tests/on_device",), ("-m", "slow or not slow")),
    "rooms": TracedRun(CPU, tuple(f"tests/{it}" for it in ("levers", "diagnose", "runtime", "machine"))),
    "inference": TracedRun(CPU, ("tests/inference",)),
    "installed": TracedRun(
        CPU,
        (
            "tests/trial/test_learning_instruments.py",
            "tests/inference/test_traps.py",
            "tests/inference/test_gpu_engines.py",
        ),
        ("-m", "slow or not slow", "-k", "larger_batch or is_lost or stand_in"),
    ),
    "trials": TracedRun(
        CPU,
        tuple(f"tests/{it}" for it in ("trial", "procedures", "measure", "watch", "cli", "check")),
        mention="cuda|CUDA|nvml|nccl|[Aa]ccelerator|uspend|eardown|launch_together",
    ),
}


def files_of(run: TracedRun) -> list[str]:
    """Its files of tests, by their path below the repository."""
    return files_of_tests(ROOT, run.folders, run.mention)


class Tracer:
    """Runs files of tests with probes; ``code`` is a folder for hotlap's modules, which it compiles."""

    def __init__(self, code: Path) -> None:
        self._code = code
        compile_all(SOURCES, code)

    def trace(self, run: TracedRun, tests: str) -> tuple[bool, Ran]:
        """Whether the tests of one file passed, and what they ran."""
        with Listener() as listener, tempfile.TemporaryDirectory(prefix="simulated-") as folder:
            variables = simulated_device("a100", Path(folder), BUILD).variables if run.has_device else {}
            path = [] if run.has_device else [str(SITE)]
            path = [*path, variables.get("PYTHONPATH", ""), str(ROOT / "src")]
            environment = {**os.environ, **variables, **listener.variables, CODE: str(self._code)}
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", *run.options, tests],
                cwd=ROOT,
                env={**environment, "PYTHONPATH": os.pathsep.join(path)},
                check=False,
            )
        return done.returncode in (0, _NO_TESTS), listener.ran
