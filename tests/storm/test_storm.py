"""Nothing survives a run: no process, no folder, no change of the user's files. See bench/storm for more."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from ahead import Ahead
from harmless.harness import Mode, Trial
from storm.storm import Kill, kill_in_own_folder
from storm.ways import WAYS

_HARDEST = ("launcher", "the launcher's child (pid 1, or the keeper)", "controller, watchdog and launchers")
"""Where nothing but hotlap's own processes ends orphans."""
_LIMIT_SECONDS = 60.0
"""The time until all is gone is measured by the benchmark, on a machine that does nothing else."""

Which: TypeAlias = tuple[int, Mode]
"""The number of a way of ending a run, and how its trials are isolated."""

ALL: tuple[Which, ...] = (
    *((number, "namespaces") for number in range(len(WAYS))),
    *((number, "fence") for number, way in enumerate(WAYS) if way.name in _HARDEST),
)
Kills: TypeAlias = Ahead[Which, Kill]


@pytest.fixture(scope="module")
def unavailable(tmp_path_factory: pytest.TempPathFactory) -> dict[Mode, str]:
    """Why trials cannot be isolated in a mode; empty where they can."""
    probe = tmp_path_factory.mktemp("probe")
    return {mode: Trial(mode, probe).unavailable() for mode in dict.fromkeys(mode for _, mode in ALL)}


@pytest.fixture(scope="module")
def kills(request: pytest.FixtureRequest, unavailable: dict[Mode, str]) -> Iterator[Kills]:
    """Those of all tests that were chosen."""
    items: list[Any] = [it for it in request.session.items if it.path == request.path]
    chosen = [it.callspec.params["which"] for it in items]
    arguments = {
        # The next hotlap cleans up only if nothing else could.
        (number, mode): (number, mode, number, not WAYS[number].swept, _LIMIT_SECONDS)
        for number, mode in chosen
        if not unavailable[mode]
    }
    with Ahead(kill_in_own_folder, arguments) as found:
        yield found


@pytest.mark.parametrize("which", ALL, ids=lambda it: f"{it[1]}-{WAYS[it[0]].name.replace(' ', '-')}")
def test_nothing_is_left_of_a_run(which: Which, kills: Kills, unavailable: dict[Mode, str]) -> None:
    if unavailable[which[1]]:
        pytest.skip(unavailable[which[1]])
    assert kills[which].troubles == []
