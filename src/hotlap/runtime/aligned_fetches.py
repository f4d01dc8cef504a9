"""The same samples are fetched with the same random numbers, in whatever process and order that happens.

Each worker of a loader has random streams of its own, so that it augments otherwise than the training process would,
from the same distribution: the batches of both cannot be compared, nor can what is computed from them. Where results
are compared, the generators of Python, NumPy and torch are therefore seeded for each fetch by the indices that it
fetches, and put back after it, so that shuffling and the model draw what they would draw without any fetch. A collate
function that draws (masked tokens) is a part of the fetch. A stream (an iterable data set) is not fetched by indices,
and a data set with a generator of its own draws from that: neither is aligned.
"""

from __future__ import annotations

import functools
import hashlib
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hotlap.runtime import randomness
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.instruments.api import Place

_ALIGNED = "hotlap_aligned"


def align(place: Place) -> None:
    """Align the fetches of this process and of all workers that it starts."""
    hooks, fetcher = place.hooks, _fetcher()
    place.interception.patches.replace(fetcher, "fetch", _aligned(hooks.torch, fetcher.fetch))

    def start(loader: Any, begin: Fetch) -> Any:
        own = loader.worker_init_fn
        loader.worker_init_fn = InWorker(own)
        try:
            return begin()
        finally:
            loader.worker_init_fn = own

    hooks.around_loader_start.append(start)


@dataclass(frozen=True, slots=True)
class InWorker:
    """Begins each worker, with what the script has it begin with. One that was not forked has nothing aligned yet."""

    own: Callable[[int], object] | None

    def __call__(self, worker: int) -> None:
        if self.own is not None:
            self.own(worker)
        fetcher = _fetcher()
        if not hasattr(fetcher.fetch, _ALIGNED):
            fetcher.fetch = _aligned(sys.modules["torch"], fetcher.fetch)


def _fetcher() -> Any:
    from torch.utils.data._utils import fetch

    return fetch._MapDatasetFetcher


def _aligned(torch: Any, fetch: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(fetch)
    def aligned(fetcher: Any, wanted: Any) -> Any:
        states = randomness.states(torch)
        _seed(torch, int.from_bytes(hashlib.blake2b(repr(wanted).encode(), digest_size=4).digest(), "big"))
        try:
            return fetch(fetcher, wanted)
        finally:
            randomness.restore(torch, states)

    setattr(aligned, _ALIGNED, True)
    return aligned


def _seed(torch: Any, seed: int) -> None:
    """Seed the generators of the processor only: those of devices, which a fetch does not use, are not put back."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
