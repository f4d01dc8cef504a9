"""Samples that are prepared once: when that is safe, and that what comes out is the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
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
IN_FILE = make_setting("cached-samples", file_bytes=1 << 20)


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


# -- in a file ---------------------------------------------------------------------------------------


class Varied(Prepared):
    """Every kind of value, with shapes that differ between samples."""

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        channels_last = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last) + index
        return {
            "half": torch.full((index % 3, 2), index, dtype=torch.bfloat16),
            "flags": torch.tensor([True, False]),
            "strided": channels_last,
            "scalar": torch.tensor(index),
            "arrays": [np.arange(index % 4, dtype=np.int16), np.float32(index), np.empty((0, 2))],
            "values": (index, -0.0, float("nan"), 1 << 70, None, True, "name", b"bytes", 1j * index),
            index: "a key that differs",
        }


def folder_of(monkeypatch: pytest.MonkeyPatch, path: Path) -> Path:
    monkeypatch.setenv("HOTLAP_RUN_DIRECTORY", str(path))
    return path


def as_they_are(sample: Any) -> Any:
    return sample


@pytest.mark.parametrize("arguments", [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}])
def test_samples_in_a_file_are_the_same_and_prepared_once(
    driver: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: Any
) -> None:
    folder_of(monkeypatch, tmp_path)
    plain = of(driver, Varied(), collate_fn=as_they_are, **arguments)
    driver.install(IN_FILE)
    dataset = Varied()
    assert of(driver, dataset, collate_fn=as_they_are, **arguments) == plain
    assert dataset.asked <= 12 + 2 * 8 + 3 * 8
    assert driver.hooks.notes == [] and list(tmp_path.iterdir()) == []


def test_types_and_layouts_come_back_and_batches_may_be_written_to(
    driver: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder_of(monkeypatch, tmp_path)
    driver.install(IN_FILE)
    loader = driver.loader(Varied(), batch_size=None, collate_fn=as_they_are)
    for _ in range(2):
        for number, sample in enumerate(driver.batches(loader)):
            expected = Varied()[number]
            assert list(sample) == list(expected)
            assert sample["strided"].stride() == expected["strided"].stride()
            assert sample["strided"].eq(expected["strided"]).all()
            assert [type(it) for it in sample["arrays"]] == [type(it) for it in expected["arrays"]]
            assert [type(it) for it in sample["values"]] == [type(it) for it in expected["values"]]
            sample["strided"].fill_(-1)
            assert sample["arrays"][0].tolist() == list(range(number % 4))
            sample["arrays"][0][:] = -1


def test_spawned_workers_open_the_file_again(driver: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder_of(monkeypatch, tmp_path)
    plain = [str(it) for it in DataLoader(Prepared(), batch_size=4)]
    driver.install(IN_FILE)
    loader = driver.loader(Prepared(), batch_size=4, num_workers=1, multiprocessing_context="spawn")
    assert [str(it) for it in driver.batches(loader)] == plain


def test_samples_beyond_the_bound_are_read_as_before(
    driver: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder_of(monkeypatch, tmp_path)
    driver.install(make_setting("cached-samples", file_bytes=1000))
    dataset = Prepared()
    loader = driver.loader(dataset, batch_size=4)
    for _ in range(2):
        assert len(list(driver.batches(loader))) == 3
    (note,) = driver.hooks.notes
    assert "they take more than the file" in note
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_tried_where_memory_does_not_hold_them_and_the_bound_does() -> None:
    small = situation(memory_bytes=40_000_000)
    assert "--sample-cache" in lever.obstacle(small).reason  # type: ignore[union-attr]
    allowed = msgspec.structs.replace(small, sample_cache_bytes=20_000_000)
    assert lever.obstacle(allowed) is None
    assert lever.candidates(allowed) == (make_setting("cached-samples", file_bytes=20_000_000),)
    assert lever.candidates(situation()) == (KEPT,)
    assert lever.obstacle(msgspec.structs.replace(small, sample_cache_bytes=1_000_000)) is not None


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
        ({"memory_bytes": 40_000_000}, "more than 20 % of this machine's memory"),
        ({"seconds": 0.2}, "would take about 320 s"),
    ],
)
def test_it_is_not_tried_where_that_cannot_pay(fields: Any, why: str) -> None:
    found = lever.obstacle(situation(**fields))
    assert isinstance(found, Skipped) and why in found.reason
