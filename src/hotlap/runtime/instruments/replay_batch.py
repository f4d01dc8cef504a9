"""The model alone: every loader replays its first batch from memory.

The remaining step time is what no loader setting can reduce. With a batch of another size it shows the model's speed at
that size.
"""

from __future__ import annotations

import copy
from typing import Any

from hotlap.records import ReplayBatch
from hotlap.runtime.batches import leading_size, second_size, transform
from hotlap.runtime.hooks import Fetch, Hooks
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: ReplayBatch) -> None:
    """Map-style loaders start no workers; an epoch keeps its number of batches."""
    replay_first_batches(place.hooks, asked.scale)


def replay_first_batches(hooks: Hooks, scale: float = 1.0) -> None:
    """The same, each batch of ``scale`` times as many samples."""
    hooks.batch_scale = scale
    first: dict[int, Any] = {}
    delivered: dict[int, int] = {}

    def without_workers(arguments: dict[str, Any]) -> None:
        from torch.utils.data import IterableDataset

        if not isinstance(arguments.get("dataset"), IterableDataset):
            arguments["num_workers"] = 0
            for name in ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context"):
                arguments.pop(name, None)

    def fetch(iterator: Any, following: Fetch) -> Any:
        # Keyed by dataset and not by iterator: the first batch serves all epochs.
        key, turn = id(iterator._dataset), id(iterator)
        if key not in first:
            first[key] = resized(following(), scale, _batch_size(iterator))
            delivered[turn] = 1
            return _fresh(first[key])
        delivered[turn] = delivered.get(turn, 0) + 1
        if delivered[turn] > _batches_in_epoch(iterator):
            del delivered[turn]
            raise StopIteration
        return _fresh(first[key])

    hooks.before_loader.append(without_workers)
    hooks.around_fetch.append(fetch)


def resized(batch: Any, scale: float, batch_size: int = 0) -> Any:
    """The batch with ``scale`` times as many samples, at least one: repeated in order, or the first of them.

    Only tensors with one row for each sample change, or one column where these are as many as the loader's
    ``batch_size`` and rows are not; what holds samples otherwise stays as it is.
    """
    samples, dimension = leading_size(batch), 0
    if samples != batch_size and batch_size and second_size(batch) == batch_size:
        samples, dimension = batch_size, 1
    wanted = max(1, round(scale * samples))
    if samples == 0 or wanted == samples:
        return batch

    def rows(tensor: Any) -> Any:
        if tensor.is_sparse or tensor.is_nested or tensor.dim() <= dimension or tensor.shape[dimension] != samples:
            return tensor
        times = [1] * tensor.dim()
        times[dimension] = -(-wanted // samples)
        made = tensor.repeat(*times).narrow(dimension, 0, wanted).clone()
        return made.pin_memory() if tensor.is_pinned() else made

    return transform(copy.copy(batch), rows)


def _fresh(batch: Any) -> Any:
    """The batch in containers of its own, since scripts take entries out of the ones they are given."""
    return transform(copy.copy(batch), lambda tensor: tensor)


def _batch_size(iterator: Any) -> int:
    """How many samples a full batch has; 0 where the loader does not say."""
    size = getattr(getattr(iterator, "_index_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else 0


def _batches_in_epoch(iterator: Any) -> float:
    try:
        return len(iterator._index_sampler)
    except (TypeError, NotImplementedError, AttributeError):
        return float("inf")
