"""How many samples a batch holds, and what that was read from."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from hotlap.records import SampleSource
from hotlap.runtime.batches import leading_size, second_size
from hotlap.runtime.hooks import Hooks

_MOST = 64
_Place: TypeAlias = Literal["first dimension", "second dimension", ""]


class BatchCounter:
    """Counts the samples of what one DataLoader delivers.

    Its batch size shows which dimension is the batch: a collate function may put the sequence first, and batches of
    graphs, or of images of many sizes, have no dimension for samples at all. ``size`` is that of a full batch, 0
    where the loader does not say. The last batch of an epoch may be short.
    """

    def __init__(self, loader: Any, scale: float = 1.0) -> None:
        self.size = _full_size(loader)
        if self.size and scale != 1.0:
            self.size = max(1, round(scale * self.size))
        self._resized = scale != 1.0
        self._place: _Place = ""

    @property
    def source(self) -> SampleSource:
        return "loader" if self.size else "batch"

    def samples(self, batch: Any) -> int:
        """The samples of one batch; without a batch size, its first dimension."""
        leading = leading_size(batch)
        if not self.size:
            return leading
        if leading == self.size:
            self._place = "first dimension"
            return leading
        second = second_size(batch)
        if second == self.size:
            self._place = "second dimension"
        elif self._place == "first dimension" and 0 < leading < self.size:
            return leading
        elif self._place == "second dimension" and 0 < second < self.size:
            return second
        return leading if self._resized else self.size  # a batch that could not be resized must not count as resized


class SampleCounts:
    """The counters of all loaders, by the iterators that they made."""

    def __init__(self, hooks: Hooks) -> None:
        self.source: SampleSource = "none"
        self._hooks = hooks
        self._of_loaders: dict[int, BatchCounter] = {}
        self._of_iterators: dict[int, BatchCounter] = {}

    def loader_started(self, loader: Any, iterator: Any) -> None:
        """Remember which loader an iterator belongs to."""
        made = BatchCounter(loader, self._hooks.batch_scale)
        counter = self._of_loaders.get(id(loader))
        if counter is None or counter.size != made.size:
            counter = made
        _keep(self._of_loaders, id(loader), counter)
        _keep(self._of_iterators, id(iterator), counter)

    def of_batch(self, iterator: Any, batch: Any) -> int:
        """The samples of one batch that the iterator delivered."""
        counter = self._of_iterators.get(id(iterator))
        if counter is None:
            self.source = "batch"
            return leading_size(batch)
        _keep(self._of_iterators, id(iterator), counter)
        self.source = counter.source
        return counter.samples(batch)


def _keep(counters: dict[int, BatchCounter], key: int, counter: BatchCounter) -> None:
    """As the one used last; the one that was not used for longest goes: every epoch may bring new ones."""
    counters.pop(key, None)
    counters[key] = counter
    if len(counters) > _MOST:
        del counters[next(iter(counters))]


def _full_size(loader: Any) -> int:
    """How many samples a full batch of a DataLoader has; 0 where it does not say."""
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return 0
    try:
        return max(1, min(size, len(loader.sampler)))
    except (TypeError, NotImplementedError, AttributeError):  # a stream has no length
        return size
