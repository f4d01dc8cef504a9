"""A reference run with other augmentations, where fetches are not aligned."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from hotlap.records import ReseedAugmentation
from hotlap.runtime import randomness
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: ReseedAugmentation) -> None:
    """Draw what the data pipeline draws from another stream, while the sampler and the weights keep theirs.

    Workers derive their seeds from the iterator's base seed, which is shifted. In the main process the generators are
    exchanged around each fetch but the first of an iterator, in which the sampler draws its own seed. Aligned fetches
    draw what they would draw without it.
    """
    from torch.utils.data import dataloader

    hooks, torch, seed = place.hooks, place.hooks.torch, asked.seed
    dataloader._BaseDataLoaderIter._base_seed = _ShiftedSeed(seed)  # type: ignore[assignment]
    fetched: WeakSet[Any] = WeakSet()
    other: list[tuple[Any, ...]] = []

    def fetch(iterator: Any, following: Fetch) -> Any:
        if iterator not in fetched or iterator._num_workers > 0:
            fetched.add(iterator)
            return following()
        own = randomness.states(torch)
        if other:
            randomness.restore(torch, other.pop())
        else:
            randomness.seed_everything(torch, seed)
        try:
            return following()
        finally:
            other.append(randomness.states(torch))
            randomness.restore(torch, own)

    hooks.around_fetch.append(fetch)


class _ShiftedSeed:
    """Stands for ``_base_seed`` on the iterator's class: what is stored is read back shifted."""

    def __init__(self, shift: int) -> None:
        self._shift = shift

    def __get__(self, iterator: Any, kind: type | None = None) -> Any:
        return vars(iterator)["_base_seed"]

    def __set__(self, iterator: Any, value: Any) -> None:
        vars(iterator)["_base_seed"] = (int(value) + self._shift) % 2**62
