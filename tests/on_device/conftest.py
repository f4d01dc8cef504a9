"""Processes with a simulated device; without a compiler there is none, and these tests are skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from simulated.environment import SimulatedDevice, simulated_device  # noqa: E402
from simulated.library import NoCompiler  # noqa: E402

BUILD = TESTS.parent / "build" / "simulated"


@pytest.fixture
def device(tmp_path: Path) -> Callable[..., SimulatedDevice]:
    """Make devices of a kind, one by default."""

    def made(kind: str = "a100", *, count: int = 1, scenario: str = "") -> SimulatedDevice:
        try:
            return simulated_device(kind, tmp_path / kind, BUILD, count=count, scenario=scenario)
        except NoCompiler as error:
            pytest.skip(str(error))

    return made


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Run a script with a device, under torchrun if it has ``ranks``, and return what it printed; a failure of
    the script fails the test."""

    def ran(device: SimulatedDevice, source: str, *arguments: str, ranks: int = 1) -> str:
        script = tmp_path / "script.py"
        script.write_text(source, encoding="utf-8")
        environment = {**os.environ, **device.variables}
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
        done = subprocess.run(
            [sys.executable, *launcher, str(script), *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return ran
