"""Garbage that is collected between steps: when, and that a script's own settings take precedence."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch

from hotlap.levers.api import find
from hotlap.levers.host import garbage_collection
from hotlap.levers.support.situations import make_setting
from hotlap.records import ScriptFacts, Situation
from hotlap.runtime.hooks import Hooks

SETTING = make_setting("garbage-collection", every_steps=4)


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    """A collector like a new process's: a worker of the tests freezes what it has collected of them."""
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.enable()


class Cycle:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.own = self


def update(hooks: Hooks, optimizer: object, times: int = 1) -> None:
    for _ in range(times):
        for listener in hooks.after_update:
            listener(optimizer)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of the lever's clock; the last one is now."""
    seconds = [0.0]
    monkeypatch.setattr(garbage_collection.time, "perf_counter", lambda: seconds[-1])
    return seconds


def test_it_collects_after_so_many_updates_and_never_in_between(clock: list[float]) -> None:
    hooks, optimizer = Hooks(torch), object()
    find("garbage-collection").install(hooks, SETTING)
    update(hooks, optimizer, 2)
    assert gc.isenabled() and not gc.get_freeze_count()
    update(hooks, optimizer)
    assert not gc.isenabled() and gc.get_freeze_count()
    alive = weakref.ref(Cycle())
    kept: list[list[int]] = [[] for _ in range(100_000)]  # as many as make an enabled collector run many times
    assert alive() is not None and kept
    update(hooks, optimizer)
    assert alive() is None
    alive = weakref.ref(Cycle())
    update(hooks, object(), 4)
    update(hooks, optimizer, 3)
    assert alive() is not None, "another optimizer's updates are not steps"
    update(hooks, optimizer)
    assert alive() is None


def test_collections_take_one_percent_at_most(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    hooks, optimizer, collected = Hooks(torch), object(), []

    def collect() -> int:
        collected.append(clock[-1])
        clock.append(clock[-1] + 0.5)
        return 0

    find("garbage-collection").install(hooks, SETTING)
    update(hooks, optimizer, 3)
    monkeypatch.setattr(gc, "collect", collect)
    for _ in range(200):
        update(hooks, optimizer)
        clock.append(clock[-1] + 1.0)
    first, *later = collected
    assert first == 0.0 and len(later) >= 2
    spans = [later_one - one for one, later_one in zip(collected, later, strict=False)]
    assert all(50 <= it <= 50.5 + 4 for it in spans)


def test_a_collector_that_the_script_disables_is_left_alone() -> None:
    hooks, optimizer = Hooks(torch), object()
    find("garbage-collection").install(hooks, SETTING)
    gc.disable()
    update(hooks, optimizer, 8)
    assert not gc.get_freeze_count()
    assert hooks.notes == ["The script disables Python's garbage collector itself, so it was left alone."]


def test_a_collector_that_the_script_enables_again_stays_enabled() -> None:
    hooks, optimizer = Hooks(torch), object()
    find("garbage-collection").install(hooks, SETTING)
    update(hooks, optimizer, 3)
    gc.enable()
    update(hooks, optimizer, 8)
    assert gc.isenabled() and not gc.get_freeze_count()


def test_the_bound_is_what_the_collector_takes() -> None:
    lever = find("garbage-collection")
    assert lever.bound(Situation(facts=ScriptFacts(garbage_share=0.2))) == pytest.approx(1.25)
    assert lever.bound(Situation(facts=ScriptFacts())) is None
    assert lever.bound(Situation(facts=ScriptFacts(garbage_share=0.2, processes=2))) is None
