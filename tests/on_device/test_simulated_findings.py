"""Causes planted for a device are found on a simulated one; `make device-findings` counts them all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated.environment import SimulatedDevice

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = (ROOT / "bench" / "findings" / "simulated.toml").read_text(encoding="utf-8")
CLEAN, PLANTED = "device_clean", "device_slow_matmul_precision"
"""Both run far ahead of the device, with products that keep it busy."""

Judge = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture
def judge(tmp_path: Path, device: Callable[..., SimulatedDevice]) -> Judge:
    """The scores of `bench.findings`, by script."""

    def judged(*names: str) -> dict[str, dict[str, Any]]:
        out = tmp_path / "findings"
        done = subprocess.run(
            [sys.executable, "-m", "bench.findings", "--device", "--out", str(out), "--only", *names],
            env={**os.environ, **device(scenario=SCENARIO).variables},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        assert out.with_suffix(".json").exists(), done.stderr
        written = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
        assert "simulated" in written["machine"]
        return {it["name"]: it for it in written["data"]["scripts"]}

    return judged


@pytest.mark.slow
def test_a_device_that_the_host_runs_ahead_of_is_not_taken_for_idle(judge: Judge) -> None:
    found = judge(CLEAN, PLANTED)
    assert [found[CLEAN]["found"], found[PLANTED]["found"]] == [[], ["slow-matmul-precision"]]
    assert not found[PLANTED]["wrong_lines"] and found[PLANTED]["ranked_first"]


@pytest.mark.slow
def test_two_runs_find_the_same(judge: Judge) -> None:
    first, second = (judge(PLANTED)[PLANTED] for _ in range(2))
    assert first["titles"] == second["titles"] and first["claims"] == second["claims"]
