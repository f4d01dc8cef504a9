"""Tests in pieces, as ``make test-gpu`` runs them on a machine that is lent for minutes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from going_on import digest_of

TESTS = Path(__file__).resolve().parent
CONFIGURATION = f"""
import sys

sys.path.insert(0, {str(TESTS)!r})

import going_on


def pytest_addoption(parser):
    parser.addoption("--within", type=float)


def pytest_configure(config):
    going_on.install(config)
"""
SLOW_TESTS = """
import time

import pytest


@pytest.mark.parametrize("number", range(3))
def test_it(number):
    time.sleep(1.5 if number == 1 else 0)
    assert number != 0
"""


def test_the_next_run_goes_on_where_time_ended(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFIGURATION, encoding="utf-8")
    (tmp_path / "test_slow.py").write_text(SLOW_TESTS, encoding="utf-8")

    def run(seconds: float) -> str:
        command = [sys.executable, "-m", "pytest", "--rootdir", str(tmp_path), "--within", str(seconds), str(tmp_path)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    first = run(1.2)
    assert "1 failed, 1 passed, 1 skipped" in first
    assert "1 tests are left" in first
    second = run(100)
    assert "1 tests had passed in earlier runs." in second
    assert "1 failed, 1 passed, 1 deselected" in second, "one that failed is run again"
    assert "are left" not in second


def test_a_change_of_the_sources_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1", encoding="utf-8")
    before = digest_of([tmp_path])
    assert digest_of([tmp_path]) == before
    (tmp_path / "a.py").write_text("2", encoding="utf-8")
    assert digest_of([tmp_path]) != before
