"""Nothing survives a run: no process, no folder, no change of the user's files. See bench/storm for more."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from harmless.harness import Mode, Trial
from storm.storm import kill_once
from storm.ways import WAYS, Way

# Where nothing but hotlap's own processes ends orphans.
_HARDEST = ("launcher", "the launcher's child (pid 1, or the keeper)", "controller, watchdog and launchers")


@pytest.fixture
def top() -> Iterator[Path]:
    """A folder with a short name, as the paths of sockets are bounded."""
    with tempfile.TemporaryDirectory(prefix="st-") as folder:
        yield Path(folder) / "s"


def check(way: Way, mode: Mode, top: Path) -> None:
    unavailable = Trial(mode, top.parent / "probe").unavailable()
    if unavailable:
        pytest.skip(unavailable)
    # What is left is tidied up by the next hotlap only where nothing else could.
    found = kill_once(way, mode, WAYS.index(way), top, resumed=not way.swept)
    assert found.troubles == []


@pytest.mark.parametrize("way", WAYS, ids=lambda it: it.name.replace(" ", "-"))
def test_nothing_is_left_of_a_run_in_namespaces(way: Way, top: Path) -> None:
    check(way, "namespaces", top)


@pytest.mark.parametrize("way", [it for it in WAYS if it.name in _HARDEST], ids=lambda it: it.name.replace(" ", "-"))
def test_nothing_is_left_of_a_run_in_a_fence(way: Way, top: Path) -> None:
    check(way, "fence", top)
