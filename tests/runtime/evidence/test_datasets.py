"""Where the time of making samples goes, found without endangering the launch."""

from __future__ import annotations

import cProfile
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from hotlap.evidence import DatasetProfile
from hotlap.records import Observe
from hotlap.runtime.evidence import datasets
from hotlap.runtime.evidence.datasets import PORTIONS, _spread, profile_dataset


class Made(Dataset[Any]):
    """Samples that some function makes."""

    def __init__(self, make: Callable[[int], Any], size: int = 1000) -> None:
        self.make = make
        self.size = size
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return self.make(index)


def transform(index: int) -> torch.Tensor:
    return torch.tensor(float(sum(range(20_000))))


def profiled(dataset: Any, **options: Any) -> DatasetProfile | None:
    return profile_dataset(torch, DataLoader(dataset, **options), None)


def test_time_is_found_where_it_goes() -> None:
    dataset = Made(transform)
    found = profiled(dataset, batch_size=16)
    assert found is not None
    assert (found.dataset, found.samples) == ("Made", 64)
    costliest = found.functions[0]
    assert costliest.name == "built-in method builtins.sum" and costliest.file == "" and costliest.calls == 64
    by_name = {it.name: it for it in found.functions}
    own = by_name["transform"]
    assert own.file == __file__ and own.line == transform.__code__.co_firstlineno
    assert costliest.own_seconds <= own.total_seconds <= found.seconds
    assert 0 < found.collate_seconds < found.seconds
    assert found.sample_devices == ("cpu",) and found.accelerator_calls == ()
    assert found.site is not None and found.site.function == "__getitem__" and found.site.file == __file__
    assert not any("hotlap/runtime" in it.file or "perf_counter" in it.name for it in found.functions)
    # All over the data set, two of them before the profiler began.
    assert len(set(dataset.asked)) == len(dataset.asked) == 66
    assert min(dataset.asked) < 50 and max(dataset.asked) > 950


def nested(index: int) -> torch.Tensor:
    return torch.tensor([[column * row for column in range(100)] for row in range(100)])


def test_a_stall_is_not_blamed_on_what_was_running() -> None:
    """One sample waits as long as fifty others take: for example because the system took the processor away."""

    class Rows(Dataset[torch.Tensor]):
        fetched = 0

        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> torch.Tensor:
            Rows.fetched += 1
            if Rows.fetched == 20:
                time.sleep(0.1)
            return self.make()

        def make(self) -> torch.Tensor:
            return torch.full((10,), float(sum(range(50_000))))

    found = profiled(Rows())
    assert found is not None and 30 <= found.samples <= 38, "fewer where others use the machine"
    times = {it.name: it.own_seconds for it in found.functions}
    assert times.get("built-in method time.sleep", 0.0) < 0.02
    assert found.functions[0].name == "built-in method builtins.sum"


def test_a_stall_is_not_blamed_on_collation() -> None:
    """A batch is collated once for all samples, so a single stall would be most of it."""
    calls: list[int] = []

    def pads(samples: list[Any]) -> torch.Tensor:
        calls.append(len(samples))
        if len(calls) == 2:
            time.sleep(0.1)
        return torch.stack(samples)

    found = profiled(Made(lambda index: torch.ones(8)), batch_size=64, collate_fn=pads)
    assert found is not None and len(calls) == PORTIONS
    times = {it.name: it.own_seconds for it in found.functions}
    assert times.get("built-in method time.sleep", 0.0) == 0.0
    assert found.collate_seconds < 0.05


def test_a_collate_function_may_take_its_samples_apart() -> None:
    """As collators that pop the labels out of each sample do; and one that can be called only once costs nothing."""
    inputs = Made(lambda index: {"inputs": torch.ones(8), "label": index})
    popped = profiled(inputs, batch_size=16, collate_fn=lambda samples: [it.pop("label") for it in samples])
    assert popped is not None and popped.collate_seconds > 0

    calls: list[int] = []

    def once(samples: list[Any]) -> torch.Tensor:
        calls.append(len(samples))
        if len(calls) > 1:
            raise Failure("no second time")
        return torch.ones(1)

    found = profiled(inputs, batch_size=64, collate_fn=once)
    assert found is not None and len(calls) == 2 and found.collate_seconds > 0


def test_a_comprehension_is_part_of_its_function() -> None:
    found = profiled(Made(nested))
    assert found is not None
    by_name = {it.name: it for it in found.functions}
    assert "<listcomp>" not in by_name
    assert by_name["nested"].own_seconds > 0.1 * found.seconds


def test_calls_of_other_threads_that_a_profiler_saw_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """As profilers of Python 3.13 have them: a function is among the calls of another, and has no entry of its own."""

    original = cProfile.Profile.getstats

    def without_one(profiler: cProfile.Profile) -> list[Any]:
        return [it for it in original(profiler) if getattr(it.code, "co_name", "") != "transform"]

    monkeypatch.setattr(cProfile.Profile, "getstats", without_one)
    found = profiled(Made(transform))
    assert found is not None
    names = {it.name for it in found.functions}
    assert "collate" in names and "transform" not in names


@pytest.mark.parametrize("size", [1, 2, 3, 65, 66, 67, 68, 1000, 999_983])
def test_indices_are_all_different_and_within(size: int) -> None:
    indices = _spread(size, 66)
    assert len(indices) == len(set(indices)) == min(size, 66)
    assert min(indices) == 0 and max(indices) < size


def test_samples_are_fetched_and_collated_as_by_the_loader() -> None:
    asked: list[int] = []

    class Together(TensorDataset):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            asked.append(len(indices))
            return [self[it] for it in indices]

    found = profiled(Together(torch.randn(100, 3)), batch_size=32)
    assert found is not None and found.samples == 64
    assert set(asked) == {2, 8}

    collated: list[int] = []
    profiled(TensorDataset(torch.randn(40, 3)), batch_size=16, collate_fn=lambda it: collated.append(len(it)))
    assert collated == [16, 16, 6] * PORTIONS
    collated.clear()
    batches = BatchSampler(SequentialSampler(range(40)), 8, drop_last=False)
    profiled(TensorDataset(torch.randn(40, 3)), batch_sampler=batches, collate_fn=lambda it: collated.append(len(it)))
    assert collated == [8, 8, 8, 8, 6] * PORTIONS
    assert profiled(Subset(TensorDataset(torch.randn(9, 3)), range(9)), batch_size=None) is not None


def test_batches_that_the_data_set_makes_whole_are_collated_as_they_are() -> None:
    class Whole(TensorDataset):
        def __getitems__(self, indices: list[int]) -> Any:
            return tuple(it[indices] for it in self.tensors)

    taken: list[tuple[Any, ...]] = []
    inputs = torch.arange(100).float()
    found = profiled(Whole(inputs, -inputs), batch_size=32, collate_fn=taken.append)
    assert found is not None and found.samples == 64
    assert [tuple(map(len, it)) for it in taken] == [(8, 8)] * 8 * PORTIONS
    assert found.sample_devices == ("cpu",)


class Failure(Exception):
    """As in user code: of a kind that is unknown in advance."""


def fails(index: int) -> Any:
    raise Failure("broken file")


def refuses_whole_numbers(index: int) -> Any:
    return {"a": torch.ones(1)}[index]  # type: ignore[index]


@pytest.fixture
def nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    before = threading.excepthook
    yield
    assert capfd.readouterr() == ("", "")
    assert threading.excepthook is before


@pytest.mark.usefixtures("nothing_is_printed")
@pytest.mark.parametrize("make", [fails, refuses_whole_numbers])
def test_a_data_set_that_fails_is_left_out(make: Callable[[int], Any]) -> None:
    assert profiled(Made(make)) is None


class Stream(IterableDataset[int]):
    """``read`` is called for each sample."""

    def __init__(self, samples: Iterable[int], read: Callable[[int], int] = int) -> None:
        self.samples = samples
        self.read = read

    def __iter__(self) -> Iterator[int]:
        for number in self.samples:
            yield self.read(number)


class Sized:
    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.usefixtures("nothing_is_printed")
def test_empty_data_sets_and_streams_are_left_out() -> None:
    assert profiled(Stream(range(0))) is None
    assert profiled(Stream(range(2))) is None
    assert profiled(Sized(), sampler=[]) is None


@pytest.mark.usefixtures("nothing_is_printed")
def test_a_stream_that_fails_is_left_out() -> None:
    assert profiled(Stream(range(50), fails)) is None


def test_a_stream_is_restarted_and_read_as_far_as_needed() -> None:
    def read(number: int) -> int:
        return sum(range(2000)) + number

    found = profiled(Stream(count(), read), batch_size=8)
    assert found is not None
    assert (found.dataset, found.samples) == ("Stream", datasets.MOST_SAMPLES)
    assert found.functions[0].name in ("read", "built-in method builtins.sum")
    assert found.site is not None
    assert (found.site.file, found.site.line) == (__file__, Stream.__iter__.__code__.co_firstlineno)


def test_one_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "LIMIT_SECONDS", 0.05)
    released = threading.Event()
    before = threading.excepthook
    try:
        assert profiled(Made(lambda index: released.wait(20) and torch.ones(1))) is None
    finally:
        released.set()
        threading.excepthook = before


def test_slow_samples_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "WANTED_SECONDS", 0.01)
    found = profiled(Made(lambda index: time.sleep(0.02) or torch.ones(1)))
    assert found is not None and found.samples == 1


def test_the_use_of_an_accelerator_is_found_with_its_line() -> None:
    """``meta`` represents one: a device that is not the CPU."""

    def make(index: int) -> torch.Tensor:
        sample = torch.ones(2)
        return sample.to("meta")

    found = profiled(Made(make), collate_fn=len, batch_size=4)
    assert found is not None
    assert found.sample_devices == ("meta",)
    (call,) = found.accelerator_calls
    assert (call.what, call.file) == ("to", __file__)
    assert call.line == make.__code__.co_firstlineno + 2


@pytest.mark.slow
def test_in_a_launch(launch) -> None:  # type: ignore[no-untyped-def]
    script = """
import random

class Noisy(Dataset):
    def __len__(self):
        return 640
    def __getitem__(self, index):
        return torch.randn(8) + random.random(), torch.ones(1)

for inputs, targets in DataLoader(Noisy(), batch_size=32, shuffle=True):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
print("loss", loss.item())
"""
    # To the end of our launch, and to the script's own: both have all samples drawn for training first.
    for steps in (12, 1000):
        watched, evidence = launch(script, steps=steps)
        (found,) = evidence.datasets
        assert (found.dataset, found.samples) == ("Noisy", 64)
        assert any(it.name.startswith("built-in method torch.randn") for it in found.functions)
    plain, _ = launch(script, steps=1000, instruments=())
    assert len(plain.steps.loss) == 20
    assert watched.steps.loss == plain.steps.loss
    assert watched.facts.loaders[0].draws_random == plain.facts.loaders[0].draws_random


def test_what_a_loader_is_used_for(launch) -> None:  # type: ignore[no-untyped-def]
    """Two loaders train side by side, one is only inspected before, and one evaluates in between."""
    script = """
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first, second, looked_at, evaluates = (
    DataLoader(TensorDataset(torch.randn(length, 2)), batch_size=4) for length in (12, 13, 14, 15)
)
next(iter(looked_at))
for epoch in range(3):
    for (one,), (other,) in zip(first, second):
        optimizer.zero_grad()
        (model(one).mean() + model(other).mean()).backward()
        optimizer.step()
    with torch.no_grad():
        for (batch,) in evaluates:
            model(batch)
"""
    watched, _ = launch(script, steps=8, instruments=(Observe(),))
    lengths = [(it.length, it.trains) for it in watched.facts.loaders]
    assert lengths == [(4, False), (3, True), (4, True), (4, False)]


# -- lines of yours for functions that are not ------------------------------------------------------


def sorts_letters(index: int) -> torch.Tensor:
    letters = [str(it * 7919 % 997) for it in range(200)]
    for _ in range(10):
        letters = sorted(letters * 3)[::3]  # sorts
    return torch.tensor(float(len(letters)))


def parses(index: int) -> torch.Tensor:
    text = "[" + ",".join(map(str, range(3000))) + "]"
    return torch.tensor(float(len(json.loads(text))))  # parses


def pads(batch: list[torch.Tensor]) -> torch.Tensor:
    time.sleep(0.02)
    return torch.stack(batch)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").split("\n")
    return next(number for number, it in enumerate(lines, start=1) if it.endswith(text))


@pytest.mark.parametrize(
    ("make", "name", "text"), [(sorts_letters, "sorted", "# sorts"), (parses, "raw_decode", "# parses")]
)
def test_functions_that_are_not_the_users_have_the_line_that_calls_them(
    make: Callable[[int], Any], name: str, text: str
) -> None:
    found = profiled(Made(make), batch_size=16)
    assert found is not None
    function = next(it for it in found.functions if name in it.name)
    assert function.caller is not None
    assert (function.caller.file, function.caller.line) == (__file__, line_of(text))
    assert function.caller.function == make.__name__
    own = next(it for it in found.functions if it.name == make.__name__)
    assert own.caller is None


def test_a_collate_function_of_the_users_has_its_line() -> None:
    found = profiled(Made(transform), batch_size=16, collate_fn=pads)
    assert found is not None and found.collate_site is not None
    assert (found.collate_site.line, found.collate_site.function) == (
        line_of("def pads(batch: list[torch.Tensor]) -> torch.Tensor:"),
        "pads",
    )
    torchs = profiled(Made(transform), batch_size=16)
    assert torchs is not None and torchs.collate_site is None
