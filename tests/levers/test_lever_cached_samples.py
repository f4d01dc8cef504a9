"""Samples that are prepared once: when that is safe, and that what comes out is the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from hotlap.levers.data import cached_samples as lever
from hotlap.levers.support.situations import make_setting
from hotlap.records import (
    LoaderFacts,
    LoaderRate,
    Machine,
    PhaseAccount,
    ScriptFacts,
    Situation,
    Skipped,
)

KEPT = make_setting("cached-samples")


class Prepared(Dataset):
    """Count the requested samples."""

    def __init__(self, length: int = 12) -> None:
        self.length = length
        self.asked = 0
        self.scale = 1.0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        picture = torch.full((2, 2), self.scale * index)
        return {"picture": picture, "more": (np.arange(3) + index, float(index), "name", [index])}


class Noisy(Prepared):
    def __getitem__(self, index: int) -> Any:
        return torch.rand(2)


class DrawsInVain(Prepared):
    """The same sample every time, and a number that the next one to draw does not get."""

    def __getitem__(self, index: int) -> Any:
        random.random()
        return torch.tensor([index])


class Counted(Prepared):
    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        return torch.tensor([self.asked])


class Epochs(Prepared):
    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class Strange(Prepared):
    def __getitem__(self, index: int) -> Any:
        return object()


class Together(Prepared):
    """Return many samples at once, as the data sets of Hugging Face do."""

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        self.asked += len(numbers)
        return [torch.tensor([number, number]) for number in numbers]


class Endless(IterableDataset):
    def __iter__(self) -> Any:
        yield from (torch.tensor([index]) for index in range(6))


def epochs(driver: Any, loader: Any, count: int = 3) -> list[str]:
    """Every batch, as text, and a random number after each epoch."""
    seen: list[str] = []
    for _ in range(count):
        seen += [str(it) for it in driver.batches(loader)]
        seen.append(str(torch.rand(1)))
    return seen


def of(driver: Any, dataset: Any, **arguments: Any) -> list[str]:
    torch.manual_seed(3)
    return epochs(driver, driver.loader(dataset, batch_size=4, shuffle=True, **arguments))


@pytest.mark.parametrize("arguments", [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}])
@pytest.mark.parametrize("kind", [Prepared, Together])
def test_the_same_batches_come_out_and_samples_are_prepared_once(driver: Any, kind: Any, arguments: Any) -> None:
    plain = of(driver, kind(), **arguments)
    driver.install(KEPT)
    dataset = kind()
    assert of(driver, dataset, **arguments) == plain
    once_and_probes = 12 + 2 * 8 + 3 * 8
    assert dataset.asked <= once_and_probes, "not three times twelve and the probes"
    assert driver.hooks.notes == []


def test_the_script_finds_its_own_data_set(driver: Any) -> None:
    driver.install(KEPT)
    dataset = Prepared()
    loader = driver.loader(dataset, batch_size=4)
    batches = driver.batches(loader)
    next(batches)
    assert loader.dataset is dataset
    assert len(list(batches)) == 2


def test_what_a_script_does_to_a_batch_is_not_kept(driver: Any) -> None:
    driver.install(KEPT)
    loader = driver.loader(Prepared(), batch_size=None)
    for _ in range(2):
        for number, sample in enumerate(driver.batches(loader)):
            assert sample["picture"].eq(number).all() and sample["more"][3] == [number]
            sample["picture"].fill_(-1)
            sample["more"][0][:] = -1
            sample["more"][3].append(-1)


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (Noisy(), "different samples for the same index"),
        (DrawsInVain(), "draws random numbers"),
        (Counted(), "different samples for the same index"),
        (Epochs(), "depend on the epoch"),
        (Strange(), "of a type that cannot be copied (object)"),
        (Endless(), "it is iterable"),
    ],
    ids=lambda it: type(it).__name__ if isinstance(it, Dataset) else "",
)
def test_what_cannot_be_kept_is_left_alone_and_said(driver: Any, dataset: Any, why: str) -> None:
    driver.install(KEPT)
    list(driver.batches(driver.loader(dataset, batch_size=4, collate_fn=list)))
    (note,) = driver.hooks.notes
    assert type(dataset).__name__ in note and why in note


def test_a_data_set_that_changes_is_read_as_before(driver: Any) -> None:
    """For example a curriculum: samples depend on something that the script sets between epochs."""
    driver.install(KEPT)
    dataset = Prepared()
    loader = driver.loader(dataset, batch_size=12)
    list(driver.batches(loader))
    dataset.scale = 2.0
    (batch,) = driver.batches(loader)
    assert batch["picture"][:, 0, 0].tolist() == [2.0 * it for it in range(12)]
    assert any("have changed" in it for it in driver.hooks.notes)
    before = dataset.asked
    list(driver.batches(loader))
    assert dataset.asked == before + 12


def test_a_loader_of_an_evaluation_keeps_nothing(driver: Any) -> None:
    driver.install(KEPT)
    dataset = Prepared()
    with torch.no_grad():
        list(driver.batches(driver.loader(dataset, batch_size=4)))
    assert dataset.asked == 12


def test_a_part_of_a_data_set_is_one_too(driver: Any) -> None:
    plain = of(driver, Subset(Prepared(), [3, 1, 5, 7]))
    driver.install(KEPT)
    assert of(driver, Subset(Prepared(), [3, 1, 5, 7])) == plain


def test_spawned_workers_get_what_was_kept(driver: Any) -> None:
    torch.manual_seed(3)
    plain = [str(it) for it in DataLoader(Prepared(), batch_size=4)]
    driver.install(KEPT)
    loader = driver.loader(Prepared(), batch_size=4, num_workers=1, multiprocessing_context="spawn")
    assert [str(it) for it in driver.batches(loader)] == plain


# -- when it is tried --------------------------------------------------------------------------------


def situation(memory_bytes: int = 16 << 30, seconds: float = 0.001, **facts: Any) -> Situation:
    loader = LoaderFacts(**{"dataset": "Pictures", "batch_size": 16, "length": 100, "batch_bytes": 100_000, **facts})
    rate = LoaderRate(setting=make_setting("loader", num_workers=0, pin_memory=False), seconds_per_sample=seconds)
    account = PhaseAccount(wall=0.1, phases=(("data_wait", 0.05), ("forward", 0.05)), samples_per_step=16)
    return Situation(
        facts=ScriptFacts(device="cpu", loaders=(loader,)),
        machine=Machine(memory_bytes=memory_bytes),
        account=account,
        loader_rates=(rate,),
    )


def test_it_is_tried_where_all_samples_fit_into_memory_and_time() -> None:
    assert lever.obstacle(situation()) is None
    assert lever.bound(situation()) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"draws_random": True}, "draws random numbers"),
        ({"iterable": True}, "iterable"),
        ({"length": None}, "length is unknown"),
        ({"memory_bytes": 40_000_000}, "more than 20% of this machine's memory"),
        ({"seconds": 0.2}, "would take about 320 s"),
    ],
)
def test_it_is_not_tried_where_that_cannot_pay(fields: Any, why: str) -> None:
    found = lever.obstacle(situation(**fields))
    assert isinstance(found, Skipped) and why in found.reason
