"""The list of benchmarks names existing results."""

from __future__ import annotations

import re

import pytest
from docs_blocks import ROOT

BENCHMARKS = ROOT / "docs" / "benchmarks"
LISTED = [it for it in (BENCHMARKS / "README.md").read_text(encoding="utf-8").splitlines() if it.startswith("|")]
ROWS = [line.strip("|").split("|") for line in LISTED[2:]]


@pytest.mark.parametrize("row", ROWS, ids=[it[0].strip() for it in ROWS])
def test_every_result_that_is_listed_is_there(row: list[str]) -> None:
    result = row[-1].strip()
    named = re.fullmatch(r"`([a-z-]+(?:\.md|/))`", result)
    assert named or result.startswith("not measured yet"), result
    assert not named or (BENCHMARKS / named[1]).exists()
