"""Make what the tests of this folder share importable, and the hunt for numbers that are not finite."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from desk import Desk
from hunting import Hunt, Stop, Train
from watching import Watched

from hotlap.records import BadNumber
from hotlap.runtime.clock import StepClock
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception
from hotlap.runtime.not_finite.watch import NumbersWatch


@pytest.fixture(autouse=True)
def nothing_is_compiled() -> None:
    """Watches leave a process alone in which anything was compiled, which other tests do."""
    torch._dynamo.utils.counters.clear()


@pytest.fixture
def watched() -> Iterator[Watched]:
    it = Watched()
    yield it
    it.interception.suspend()


@pytest.fixture
def hunt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hunt]:
    """Runs a training and returns what was found. ``check_from`` is the step from which on operations are checked;
    ``at_the_end`` the watch is notified that the script has ended."""
    monkeypatch.setattr(
        "hotlap.runtime.not_finite.checked_steps.switch_compiling_off", lambda: None
    )  # it cannot be removed
    watches: list[NumbersWatch] = []
    interceptions: list[Interception] = []

    def run(train: Train, check_from: int | None = 0, *, at_the_end: bool = False) -> BadNumber | None:
        torch.manual_seed(0)
        found: list[BadNumber] = []

        def stop(bad: BadNumber) -> None:
            found.append(bad)
            raise Stop

        hooks = Hooks(torch=torch)
        interception = Interception(hooks)
        interceptions.append(interception)
        clock = StepClock(
            hooks,
            source="auto",
            scaling=interception,
            on_step=lambda: [tell() for tell in hooks.step_ended],  # type: ignore[arg-type]
        )
        interception.install()
        watches.append(NumbersWatch(interception, clock, check_from, stop))
        try:
            train()
            if at_the_end and watches[-1].checked is not None:
                watches[-1].checked.script_ended()
        except Stop:
            return found[0]
        finally:
            watches[-1].stop()
            interception.suspend()
        return None

    yield run
    for watch, interception in zip(watches, interceptions, strict=True):
        watch.stop()
        interception.suspend()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)
