"""The worst batch first: the largest samples of the data set, collated as the loader does.

Whether a batch size fits is decided by the largest batch that can come, which may be far into the data.
"""

from __future__ import annotations

import time
from typing import Any

from hotlap.records import LargestSamples
from hotlap.runtime.batches import size_in_bytes
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.instruments.api import Place

MOST_SAMPLES = 4096
MOST_SECONDS = 5.0
_AT_FETCH = 4
"""Which fetch is replaced: one after the first steps, which allocate what only they need."""


def install(place: Place, asked: LargestSamples) -> None:
    """Once, in the first loader over a map-style data set that is read so far."""
    fetches = 0
    torch = place.hooks.torch

    def fetch(iterator: Any, following: Fetch) -> Any:
        nonlocal fetches
        batch = following()
        if not torch.is_grad_enabled():
            return batch
        fetches += 1
        if fetches != _AT_FETCH:
            return batch
        largest = _largest_batch(iterator)
        return batch if largest is None else largest

    place.hooks.around_fetch.append(fetch)


def _largest_batch(iterator: Any) -> Any:
    """A batch of the largest samples; None where they are all of one size, or cannot be fetched by index."""
    sampler = getattr(iterator, "_index_sampler", None)
    size, count = getattr(sampler, "batch_size", None), _length(iterator)
    if not isinstance(size, int) or not count:
        return None
    dataset = iterator._dataset
    ends = time.perf_counter() + MOST_SECONDS
    sizes: dict[int, int] = {}
    for index in range(0, count, max(1, count // MOST_SAMPLES)):
        sizes[index] = _bytes_of(dataset[index])
        if time.perf_counter() > ends:
            break
    if min(sizes.values()) == max(sizes.values()):
        return None
    largest = sorted(sizes, key=lambda it: -sizes[it])[:size]
    indices = [largest[number % len(largest)] for number in range(min(size, count))]
    return iterator._collate_fn([dataset[it] for it in indices])


def _bytes_of(sample: Any) -> int:
    """Bytes of the sample's tensors, or how much text or how many numbers it has where it holds none."""
    found = size_in_bytes(sample)
    if found:
        return found
    parts = sample.values() if isinstance(sample, dict) else sample if isinstance(sample, (tuple, list)) else (sample,)
    return sum(len(it) if hasattr(it, "__len__") else 1 for it in parts)


def _length(iterator: Any) -> int:
    from torch.utils.data import IterableDataset

    dataset = iterator._dataset
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        return 0
    return len(dataset)
