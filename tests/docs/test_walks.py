"""The walks through the rooms in docs/architecture.md name code that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WALKS = TEXT[TEXT.index("## Two walks through the rooms") : TEXT.index("## How a trial works")]
STOPS = re.findall(r"`([\w/]+\.py)`, `(\w+)`", WALKS)


def test_there_are_two_walks() -> None:
    assert len(STOPS) >= 20


@pytest.mark.parametrize(("file", "name"), STOPS, ids=lambda it: str(it))
def test_a_stop_is_there(file: str, name: str) -> None:
    source = (ROOT / "src" / "hotlap" / file).read_text(encoding="utf-8")
    assert re.search(rf"^\s*(def|class) {name}\b", source, flags=re.MULTILINE), f"{file} has no {name}"
