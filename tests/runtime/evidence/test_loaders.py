"""How the training loaders were used, and how their batches got to the device."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hotlap.runtime.evidence.batch_copies import BatchCopies, CopyCount
from hotlap.runtime.evidence.loaders import _finished_batches
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception


def test_only_training_loaders_are_reported(launch) -> None:  # type: ignore[no-untyped-def]
    script = """
class Held(TensorDataset):
    pass

held_out = DataLoader(Held(torch.randn(64, 8), torch.randn(64, 1)), batch_size=32)
for epoch in range(3):
    for inputs, targets in DataLoader(TensorDataset(*data[:256]), batch_size=32, num_workers=2):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    for inputs, targets in held_out:
        with torch.no_grad():
            model(inputs)
"""
    _, evidence = launch(script, steps=18)
    assert [it.dataset for it in evidence.loaders] == ["TensorDataset"] * 3
    assert [len(it.start_seconds) for it in evidence.loaders] == [1, 1, 1]
    assert [len(it.first_fetch_seconds) for it in evidence.loaders] == [1, 1, 1]
    # A fetch that finds the end does not count; of the last epoch two batches were wanted.
    assert [len(it.fetch_seconds) for it in evidence.loaders] == [7, 7, 1]
    assert [len(it.queue_lengths) for it in evidence.loaders] == [7, 7, 1]
    assert all(0 <= length <= 4 for it in evidence.loaders for length in it.queue_lengths)
    assert all(seconds > 0 for it in evidence.loaders for seconds in (*it.start_seconds, *it.fetch_seconds))


@pytest.mark.slow
def test_a_loader_recreated_in_every_epoch_counts_as_one(launch) -> None:  # type: ignore[no-untyped-def]
    script = """
small = TensorDataset(*data[:128])
for epoch in range(100):
    for inputs, targets in DataLoader(small, batch_size=32):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
"""
    _, evidence = launch(script, steps=22, profiled_steps=4)
    (use,) = evidence.loaders
    # Six epochs were begun; the four steps under the profiler began none.
    assert len(use.start_seconds) == len(use.first_fetch_seconds) == 6
    assert len(use.fetch_seconds) == 22 - 6 - 3
    assert use.queue_lengths == ()


# -- without a launch --------------------------------------------------------------------------


def test_finished_batches_are_counted_wherever_they_wait() -> None:
    def queue_of(number: int) -> queue.Queue[int]:
        waiting: queue.Queue[int] = queue.Queue()
        for it in range(number):
            waiting.put(it)
        return waiting

    arrived = queue_of(2)
    tasks = {4: (0,), 5: (1, "a batch that came too early"), 6: (0,)}
    plain = SimpleNamespace(_data_queue=arrived, _worker_result_queue=arrived, _task_info=tasks)
    pinned = SimpleNamespace(_data_queue=arrived, _worker_result_queue=queue_of(3), _task_info=tasks)
    assert _finished_batches(plain) == 3
    assert _finished_batches(pinned) == 6
    assert _finished_batches(SimpleNamespace()) is None

    class Uncountable:
        def qsize(self) -> int:
            raise NotImplementedError

    assert _finished_batches(SimpleNamespace(_data_queue=Uncountable())) is None


class Pinned(torch.Tensor):
    """A tensor that claims to be pinned, which requires an accelerator."""

    def is_pinned(self, device: Any = None) -> bool:
        return True


@pytest.fixture
def copies() -> BatchCopies:
    return BatchCopies(Interception(Hooks(torch=torch)))


def pinned(*shape: int) -> torch.Tensor:
    return torch.ones(*shape).as_subclass(Pinned)


def test_a_batch_counts_once_however_many_tensors_it_has(copies: BatchCopies) -> None:
    count = CopyCount()
    for _ in range(3):
        batch = {"inputs": torch.ones(4), "targets": torch.ones(4)}
        copies.count(batch, count)
        for tensor in batch.values():
            copies.copied(tensor, ("cuda",), {})
    assert (count.pageable, count.blocking) == (3, 0)
    assert count.site is not None
    assert count.site.function == "test_a_batch_counts_once_however_many_tensors_it_has"


@pytest.mark.parametrize(
    ("args", "kwargs", "blocking"),
    [
        (("cuda",), {}, 1),
        (("cuda",), {"non_blocking": False}, 1),
        (("cuda",), {"non_blocking": True}, 0),
        (("cuda", torch.float16, True), {}, 0),
        ((0, True), {}, 0),
        (("cuda", torch.float16, False, True), {}, 1),
    ],
)
def test_a_copy_from_pinned_memory_may_leave_the_host_free(
    copies: BatchCopies, args: tuple[Any, ...], kwargs: dict[str, Any], blocking: int
) -> None:
    count = CopyCount()
    batch = [pinned(4), torch.ones(4).to("meta")]
    copies.count(batch, count)
    copies.copied(batch[0], args, kwargs)
    assert (count.pageable, count.blocking) == (0, blocking)


def test_only_the_batch_s_own_tensors_count(copies: BatchCopies) -> None:
    count = CopyCount()
    batch = torch.ones(4)
    copies.count(batch, count)
    copies.copied(batch.double(), ("cuda",), {})
    copies.count(None, None)
    copies.copied(batch, ("cuda",), {})
    assert (count.pageable, count.blocking) == (0, 0)


def test_copies_are_seen_where_torch_has_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    interception = Interception(Hooks(torch=torch))
    copies = BatchCopies(interception)
    try:
        count = CopyCount()
        batch = torch.ones(4)
        copies.count(batch, count)
        batch.to(torch.float64)
        assert count.pageable == 0
        assert batch.to("meta").device.type == "meta"
        assert count.pageable == 1
    finally:
        interception.suspend()
