"""A launch waits until the device has been cleaned up after the one before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hotlap.trial import teardown
from hotlap.trial.teardown import Teardown

GIB = 1 << 30


class UsedDevice:
    """A device of which so much is used, look by look; the last value stays."""

    def __init__(self, *used: int | None) -> None:
        self.values = list(used)

    def used_bytes(self) -> int | None:
        return self.values.pop(0) if len(self.values) > 1 else self.values[0]


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Time that passes only while somebody sleeps."""
    slept: list[float] = []
    monkeypatch.setattr(teardown.time, "sleep", slept.append)
    monkeypatch.setattr(teardown.time, "perf_counter", lambda: sum(slept))
    yield slept


def waits(device: Any) -> Teardown:
    made = Teardown(device, limit_seconds=1.0)
    made.wait()
    return made


def test_until_the_memory_is_back(pauses: list[float]) -> None:
    device = UsedDevice(2 * GIB, 30 * GIB, 30 * GIB, 2 * GIB + 1, 7 * GIB)
    waits(device).wait()
    assert len(pauses) == 2 and device.values == [7 * GIB]


def test_not_longer_than_the_limit_and_then_it_is_somebody_elses(pauses: list[float]) -> None:
    made = waits(UsedDevice(0, 30 * GIB))
    made.wait()
    assert 1.0 <= sum(pauses) < 1.2
    before = len(pauses)
    made.wait()
    assert len(pauses) == before


@pytest.mark.parametrize("used", [(None,), (GIB, None), (GIB, GIB), (GIB, 0)], ids=str)
def test_not_at_all_where_nothing_is_known_or_nothing_grew(used: tuple[int | None, ...], pauses: list[float]) -> None:
    waits(UsedDevice(*used)).wait()
    assert pauses == []
