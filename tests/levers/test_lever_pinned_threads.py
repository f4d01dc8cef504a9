"""Threads that compute are found, bound to cores and freed again; others are left alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from hotlap.levers.api import find
from hotlap.levers.host.pinned_threads import computing_threads, cores_in_order
from hotlap.levers.support.situations import make_setting
from hotlap.records import LoaderFacts, Machine, ScriptFacts, Situation
from hotlap.runtime.hooks import Hooks

LEVER = find("pinned-threads")
CORES = os.sched_getaffinity(0)
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="there is one core")


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def hooks() -> Hooks:
    return Hooks(torch=torch)


def cores_of(task: int) -> set[int]:
    return os.sched_getaffinity(task)


def situation(*, threads: int = 4, cores: int = 4, workers: int = 0, processes: int = 1) -> Situation:
    loader = LoaderFacts(dataset="Images", batch_size=32, workers=workers, trains=True)
    facts = ScriptFacts(device="cpu", threads=threads, loaders=(loader,), processes=processes)
    return Situation(facts=facts, machine=Machine(cores=cores, physical_cores=cores))


def test_the_thread_that_computes_is_told_from_one_that_does_not() -> None:
    over = threading.Event()
    waiting = threading.Thread(target=over.wait)
    waiting.start()
    found = computing_threads(torch)
    over.set()
    waiting.join()
    assert len(found) == 1
    assert found[0] not in {threading.get_native_id(), waiting.native_id}
    assert found == computing_threads(torch)


def test_one_thread_computes_alone() -> None:
    torch.set_num_threads(1)
    assert computing_threads(torch) == []


@needs_two_cores
def test_compute_threads_are_bound_and_freed(hooks: Hooks) -> None:
    assert LEVER.switch is not None
    (worker,) = computing_threads(torch)
    switch = LEVER.switch(hooks, make_setting("pinned-threads", workers="anywhere"))
    switch.on()
    assert len(cores_of(worker)) == 1
    assert cores_of(threading.get_native_id()) == CORES, "what it starts would inherit its only core"
    switch.off()
    assert cores_of(worker) == CORES


@needs_two_cores
def test_installed_it_begins_with_the_first_model(hooks: Hooks) -> None:
    (worker,) = computing_threads(torch)
    LEVER.install(hooks, make_setting("pinned-threads", workers="anywhere"))
    assert cores_of(worker) == CORES
    (found,) = hooks.model_found
    found(torch.nn.Linear(2, 2))
    assert len(cores_of(worker)) == 1
    os.sched_setaffinity(worker, CORES)


@needs_two_cores
def test_workers_of_a_loader_get_the_cores_that_are_left(hooks: Hooks) -> None:
    assert LEVER.switch is not None
    torch.set_num_threads(1)
    switch = LEVER.switch(hooks, make_setting("pinned-threads", workers="apart"))
    switch.on()
    loader = DataLoader(TensorDataset(torch.arange(64.0)), num_workers=1)
    (around,) = hooks.around_loader_start
    iterator = around(loader, lambda: iter(loader))
    (worker,) = (it.pid for it in iterator._workers)
    assert cores_of(worker) == set(cores_in_order(CORES)[1:])
    switch.off()
    assert cores_of(worker) == CORES
    assert len(list(iterator)) == 64


def test_physical_cores_come_first(tmp_path: Path) -> None:
    for core, siblings in ((0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    assert cores_in_order({3, 2, 1, 0}, tmp_path) == [0, 1, 2, 3]
    assert cores_in_order({3, 1, 2}, tmp_path) == [1, 2, 3]
    assert cores_in_order({5, 4}, tmp_path / "absent") == [4, 5]


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (situation(threads=1), "single thread"),
        (situation(threads=8), "8 threads"),
        (situation(processes=2), "Several processes"),
    ],
)
def test_where_it_cannot_help_it_says_why(refused: Situation, words: str) -> None:
    obstacle = LEVER.obstacle(refused)
    assert obstacle is not None and words in obstacle.reason
    assert LEVER.candidates(refused) == ()


def test_workers_are_bound_only_where_cores_are_left() -> None:
    wanted = [dict(it.values)["workers"] for it in LEVER.candidates(situation(threads=2, workers=2))]
    assert wanted == ["apart", "anywhere"]
    assert len(LEVER.candidates(situation(threads=4, workers=2))) == 1
    assert len(LEVER.candidates(situation(threads=2))) == 1
