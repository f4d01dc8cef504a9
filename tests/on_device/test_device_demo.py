"""``make device-demo``: its report names the simulation, and it needs no compiler to say so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated.environment import SimulatedDevice

TESTS = Path(__file__).resolve().parents[1]


def demo(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "simulated.demo", *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")]), **variables},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


def test_without_a_compiler_it_says_so_and_ends_well(tmp_path: Path) -> None:
    done = demo("--build", str(tmp_path / "build"), PATH=str(tmp_path), CXX="")
    assert done.returncode == 0, done.stderr
    assert "needs a C++ compiler" in done.stdout


@pytest.mark.slow
def test_it_shows_a_report_and_says_what_it_is(device: Callable[..., SimulatedDevice]) -> None:
    device()  # skips where there is no compiler
    done = demo()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("S I M U L A T I O N") == 2
    assert "launch-bound" in done.stdout and "NVIDIA A100" in done.stdout
