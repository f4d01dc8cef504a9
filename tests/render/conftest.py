"""Snapshots of rendered text: `pytest tests/render --update` writes them again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

SNAPSHOTS = Path(__file__).parent / "snapshots"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the snapshots of tests/render again")


@pytest.fixture
def matches_snapshot(request: pytest.FixtureRequest) -> Callable[[str, str], bool]:
    """Compare a text with the snapshot of that name; with --update replace the snapshot."""

    def matches(name: str, shown: str) -> bool:
        path = SNAPSHOTS / f"{name}.txt"
        if request.config.getoption("--update", default=False):
            path.write_text(shown, encoding="utf-8")
        assert shown == path.read_text(encoding="utf-8")
        return True

    return matches
