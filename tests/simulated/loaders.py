"""A DataLoader's workers on simulated time.

Each worker has a clock of its own. A request carries the moment at which it was made, before which the worker does
not begin; a batch carries the moment at which it was done, until which the training process waits for it.
"""

from __future__ import annotations

from typing import Any

from simulated.library import Library


class Asked(list[Any]):
    """The indices of a batch, and when they were sent to a worker."""

    moment = 0


class Made:
    """A batch, and when a worker had it."""

    def __init__(self, batch: Any, moment: int) -> None:
        self.batch, self.moment = batch, moment

    def pin_memory(self, *arguments: Any) -> Made:
        from torch.utils.data._utils.pin_memory import pin_memory

        return Made(pin_memory(self.batch, *arguments), self.moment)


def install(torch: Any, library: Library) -> None:
    """Intercept what a loader and its workers send each other."""
    from torch.utils.data import dataloader, get_worker_info
    from torch.utils.data._utils import fetch

    iterator: Any = dataloader._MultiProcessingDataLoaderIter
    next_index, process_data = iterator._next_index, iterator._process_data

    def asked(self: Any) -> Any:
        index = next_index(self)
        if not isinstance(index, list):
            return index
        found = Asked(index)
        found.moment = library.now()
        return found

    def processed(self: Any, data: Any, *arguments: Any) -> Any:
        if isinstance(data, Made):
            library.wait_until(data.moment)
            data = data.batch
        return process_data(self, data, *arguments)

    iterator._next_index, iterator._process_data = asked, processed
    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        _stamp(kind, library, get_worker_info)


def _stamp(kind: Any, library: Library, worker: Any) -> None:
    fetch = kind.fetch

    def fetched(self: Any, index: Any) -> Any:
        if worker() is None:
            return fetch(self, index)
        library.wait_until(getattr(index, "moment", 0))
        return Made(fetch(self, index), library.now())

    kind.fetch = fetched
