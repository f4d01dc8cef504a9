"""Where a fence gives another result than no isolation without an error, the report names the reason."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from harmless.harness import Mode, Trial
from harmless.table import TABLE

from hotlap.records import Isolation
from hotlap.trial.isolating import HARD_LINKS_GAP, IGNORED_GAP, PROPERTIES_GAP, STALE_GAP, Isolator

_NAMED: Mapping[str, frozenset[str]] = {
    PROPERTIES_GAP: frozenset(
        {
            "chmod by a program",
            "chmod -R by a program",
            "touch by a program",
            "touch -c of a file that is only read",
            "setxattr by a child",
            "utime by a child",
            "chmod by ctypes",
        }
    ),
    STALE_GAP: frozenset(
        {
            "overwrite, then cat",
            "delete, then ls",
            "append, then wc",
            "a child without hooks sees what was written",
        }
    ),
    IGNORED_GAP: frozenset({"perl -pi"}),
    HARD_LINKS_GAP: frozenset({"a hard-linked pair, one written"}),
}


def test_what_changes_outside_of_a_fence_is_named() -> None:
    assert {it.name for it in TABLE if it.fence == "gap"} == _NAMED[PROPERTIES_GAP]


def test_what_differs_in_a_fence_is_named() -> None:
    named = frozenset().union(*_NAMED.values()) - _NAMED[PROPERTIES_GAP]
    assert {it.name for it in TABLE if it.fence == "differs"} == named


@pytest.mark.parametrize("mode", ["fence", "none"])
def test_the_report_names_gaps(mode: Mode, tmp_path: Path) -> None:
    unavailable = Trial(mode, tmp_path).unavailable()
    if unavailable:
        pytest.skip(unavailable)
    told = Isolator(Isolation(mode=mode), tmp_path, {}).protection.gaps
    assert {STALE_GAP, HARD_LINKS_GAP} <= set(told)
    assert mode == "none" or {PROPERTIES_GAP, IGNORED_GAP} <= set(told)
