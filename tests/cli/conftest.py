"""Fixtures: a directory with a script, and engines that need no processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rich.console import RenderableType

from hotlap.records import NumbersHunt
from hotlap.render.brief import MOST_LINES, brief_lines
from hotlap.render.lines import Paper
from hotlap.render.nan import nan_report
from hotlap.render.nan_summary import nan_summary

sys.path.insert(0, str(Path(__file__).parents[1]))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a working directory with a script; ignore terminal settings of the caller."""
    (tmp_path / "train.py").write_text("print('training')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def nan_answers_fit_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the summary of each hunt for a NaN whose whole report a test looks at."""

    def checked(found: NumbersHunt) -> RenderableType:
        lines = brief_lines(nan_summary(found), Paper(width=80))
        assert len(lines) <= MOST_LINES and max(map(len, lines)) <= 80
        assert lines[0].startswith("hotlap nan  train.py")
        assert lines[-1].startswith(("  hotlap nan --steps ", "  hotlap nan --seed "))
        assert ("Origin  " in "\n".join(lines)) is (found.repeated is not None)
        return nan_report(found)

    monkeypatch.setattr("hotlap.cli.nan.nan_report", checked)
