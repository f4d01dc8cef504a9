"""Copying ahead, with a side stream that copies to torch's ``meta`` device instead of a GPU."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from hotlap.levers.data.device_prefetch import prefetch
from hotlap.levers.support.situations import make_setting


@dataclass
class MetaSide:
    """Record what was copied ahead and what was used."""

    device_type: str = "meta"
    copied: list[Any] = field(default_factory=list)
    taken: list[Any] = field(default_factory=list)

    def copy(self, tensor: Any, device: Any, plain: Any) -> Any:
        self.copied.append(tensor[0, 0].item())
        return plain(tensor, device)

    def take(self, ticket: Any) -> Any:
        self.taken.append(ticket)
        return ticket


class Numbers(Dataset):
    """Sample i is [i], with a label that the script never copies."""

    def __init__(self, length: int = 8, broken: int | None = None) -> None:
        self.length, self.broken = length, broken

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        if index == self.broken:
            raise ValueError("a broken sample")
        return {"x": torch.tensor([float(index)]), "y": -index}


@pytest.fixture
def side(driver) -> MetaSide:
    side = MetaSide()
    prefetch(driver.hooks, side).on()
    return side


def first_numbers(driver, loader, copy=lambda x: x.to("meta")) -> list[float]:
    seen = []
    for batch in driver.batches(loader):
        seen.append(batch["x"][0, 0].item())
        assert copy(batch["x"]).device.type == "meta"
    return seen


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_keep_their_order_and_copies_are_taken_from_the_side(driver, side, workers: int) -> None:
    loader = driver.loader(Numbers(), batch_size=2, num_workers=workers, persistent_workers=workers > 0)
    assert first_numbers(driver, loader) == [0, 2, 4, 6]
    assert side.copied == [2, 4, 6]  # the first was learned from
    assert len(side.taken) == 3
    assert first_numbers(driver, loader) == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("workers", "patterns"), [(0, range(2**8)), (1, (0b01010101, 0b10101010, 0b00111100, 0b11000011))]
)
def test_no_batch_is_lost_or_repeated_where_it_is_switched(driver, workers: int, patterns: Sequence[int]) -> None:
    """On and off before each batch over two epochs, in every pattern where no worker has to be started."""
    side = MetaSide()
    switch = prefetch(driver.hooks, side)
    loader = driver.loader(Numbers(), batch_size=2, num_workers=workers, persistent_workers=workers > 0)
    for pattern in patterns:
        seen: list[float] = []
        for number in range(8):
            (switch.on if pattern >> number & 1 else switch.off)()
            if number % 4 == 0:
                batches = driver.batches(loader)
            batch = next(batches)
            seen.append(batch["x"][0, 0].item())
            assert batch["x"].to("meta").device.type == "meta"
            if number % 4 == 3:
                assert next(batches, None) is None
        assert seen == [0, 2, 4, 6] * 2
    switch.off()
    side.copied.clear()
    assert first_numbers(driver, loader) == [0, 2, 4, 6]
    assert side.copied == []


def test_every_way_to_ask_for_the_device_is_answered(driver, side) -> None:
    ways = [
        lambda x: x.to("meta"),
        lambda x: x.to(device=torch.device("meta")),
        lambda x: x.to("meta", torch.float16),
        lambda x: x.to(torch.empty(0, device="meta")),
        lambda x: x.to("meta", non_blocking=True),
    ]
    for way in ways:
        before = len(side.taken)
        assert first_numbers(driver, driver.loader(Numbers(), batch_size=2), way) == [0, 2, 4, 6]
        assert len(side.taken) == before + 3


def test_a_tensor_changed_in_place_is_copied_afresh(driver, side) -> None:
    first_numbers(driver, driver.loader(Numbers(), batch_size=2), lambda x: x.add_(1).to("meta"))
    assert side.copied == [2, 4, 6]
    assert side.taken == []


def test_a_second_copy_is_another_tensor(driver, side) -> None:
    for batch in driver.batches(driver.loader(Numbers(), batch_size=2)):
        assert batch["x"].to("meta") is not batch["x"].to("meta")


def test_nothing_is_fetched_ahead_of_a_script_that_copies_nothing(driver, side) -> None:
    fetched = []

    class Counting(Numbers):
        def __getitem__(self, index: int):
            fetched.append(index)
            return super().__getitem__(index)

    for number, batch in enumerate(driver.batches(driver.loader(Counting(), batch_size=2))):
        batch["x"].to(torch.float64)
        assert len(fetched) == 2 * (number + 1)
    assert side.copied == []


def test_leaving_an_epoch_early_loses_no_batch_of_the_next(driver, side) -> None:
    loader = driver.loader(Numbers(), batch_size=2, num_workers=1, persistent_workers=True)
    for batch in driver.batches(loader):
        batch["x"].to("meta")
        if batch["x"][0, 0] == 2:
            break
    assert first_numbers(driver, loader) == [0, 2, 4, 6]


def test_an_error_in_the_data_set_reaches_the_script(driver, side) -> None:
    with pytest.raises(ValueError, match="a broken sample"):
        first_numbers(driver, driver.loader(Numbers(broken=5), batch_size=2))


def test_an_exhausted_iterator_stays_exhausted_and_batches_are_not_kept(driver, side) -> None:
    iterator = iter(driver.loader(Numbers(4), batch_size=2))
    (around,) = driver.hooks.around_fetch

    def fetch():
        return around(iterator, lambda: next(iterator))

    first = fetch()
    first["x"].to("meta")
    gone = weakref.ref(first["x"])
    del first
    assert gone() is None
    fetch()
    for _ in range(2):
        with pytest.raises(StopIteration):
            fetch()


@pytest.mark.gpu
@pytest.mark.parametrize("pinned", [True, False])
def test_what_arrives_on_the_gpu_is_what_was_sent(driver, pinned: bool) -> None:
    driver.install(make_setting("device-prefetch"))
    loader = driver.loader(Numbers(64), batch_size=2, pin_memory=pinned)
    busy = torch.randn(2000, 2000, device="cuda")
    for number, batch in enumerate(driver.batches(loader)):
        arrived = batch["x"].cuda()
        busy @ busy
        assert arrived.flatten().tolist() == [2.0 * number, 2.0 * number + 1]
