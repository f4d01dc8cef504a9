"""How the training loaders are used: their starts, their fetches, how full their queues are, and what they feed from.

A loader is a training loader when its batch was the last one fetched before a backward, and no evaluation's. Loaders
over one data set with the same workers count as one: many scripts make a new one in every epoch.
"""

from __future__ import annotations

import time
import weakref
from typing import Any

from hotlap.evidence import DatasetProfile, LoaderUse
from hotlap.records import CallSite
from hotlap.runtime.call_sites import user_site
from hotlap.runtime.evidence.batch_copies import BatchCopies, CopyCount
from hotlap.runtime.evidence.datasets import profile_dataset
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.interception import Interception
from hotlap.runtime.last_read import LastRead
from hotlap.runtime.stopwatch import EVALUATION
from hotlap.runtime.unit_clock import UnitClock

MOST_FETCHES = 4000
MOST_DATASETS = 4
_now = time.perf_counter


class LoaderWatch:
    """Times every start and fetch from outside. The starts and what follows them are always recorded; other fetches,
    queue lengths and copies only while steps are counted."""

    def __init__(self, interception: Interception, clock: UnitClock) -> None:
        hooks = interception.hooks
        self._torch = hooks.torch
        self._counting = False
        self._sites: weakref.WeakKeyDictionary[Any, CallSite] = weakref.WeakKeyDictionary()
        self._uses: dict[tuple[int, int, Any], _Use] = {}
        self._of_iterator: weakref.WeakKeyDictionary[Any, _Use] = weakref.WeakKeyDictionary()
        self._last_read: LastRead[_Use] = LastRead()
        self._copies = BatchCopies(interception)
        hooks.after_loader.append(self._loader_made)
        hooks.around_loader_start.append(self._start)
        hooks.around_fetch.append(self._fetch)
        hooks.before_backward.append(self._backward)
        hooks.was_outside.append(self._was_outside)

    def pause(self) -> None:
        self._counting = False
        self._copies.count(None, None)

    def resume(self) -> None:
        self._counting = True

    def _loader_made(self, loader: Any) -> None:
        site = user_site("loader", type(loader).__name__)
        if site is not None:
            self._sites[loader] = site

    def _start(self, loader: Any, start: Fetch) -> Any:
        # By its dataset, which the use keeps alive: no other object can have this identity meanwhile.
        key = (id(loader.dataset), loader.num_workers, loader.batch_size)
        use = self._uses.setdefault(key, _Use())
        use.loader, use.site = loader, self._sites.get(loader)
        began = _now()
        iterator = start()
        use.start_seconds.append(_now() - began)
        use.started = True
        self._of_iterator[iterator] = use
        return iterator

    def _fetch(self, iterator: Any, fetch: Fetch) -> Any:
        use = self._of_iterator.get(iterator)
        if use is None:
            return fetch()
        waiting = _finished_batches(iterator) if self._counting and not use.started else None
        self._last_read.ask(use)
        began = _now()
        batch = fetch()
        seconds = _now() - began
        self._last_read.got(use)
        if use.started:
            use.started = False
            use.first_fetch_seconds.append(seconds)
        elif self._counting and len(use.fetch_seconds) < MOST_FETCHES:
            use.fetch_seconds.append(seconds)
            if waiting is not None:
                use.queue_lengths.append(waiting)
        if self._counting:
            self._copies.count(batch, use.copies)
        return batch

    def _backward(self, loss: Any) -> Any:
        last = self._last_read.backward()
        if last is not None:
            last.trains = True
        return loss

    def _was_outside(self, phase: int) -> None:
        if phase == EVALUATION:
            self._last_read.evaluated(self._last_read.source)

    def result(self) -> dict[str, object]:
        """The fields ``loaders`` and ``datasets``; the latter by fetching samples, once for each data set."""
        training = [it for it in self._uses.values() if it.trains]
        by_dataset = {id(it.loader.dataset): it for it in training}
        profiles = [
            profile_dataset(self._torch, it.loader, it.site) for it in list(by_dataset.values())[:MOST_DATASETS]
        ]
        return {
            "loaders": tuple(it.result() for it in training),
            "datasets": tuple(it for it in profiles if isinstance(it, DatasetProfile)),
        }


class _Use:
    """What is known of one loader so far; ``started`` says that its next fetch is the first since a start."""

    def __init__(self) -> None:
        self.loader: Any = None
        self.site: CallSite | None = None
        self.trains = False
        self.started = False
        self.start_seconds: list[float] = []
        self.first_fetch_seconds: list[float] = []
        self.fetch_seconds: list[float] = []
        self.queue_lengths: list[int] = []
        self.copies = CopyCount()

    def result(self) -> LoaderUse:
        return LoaderUse(
            dataset=type(self.loader.dataset).__name__,
            start_seconds=tuple(self.start_seconds[:MOST_FETCHES]),
            first_fetch_seconds=tuple(self.first_fetch_seconds[:MOST_FETCHES]),
            fetch_seconds=tuple(self.fetch_seconds),
            queue_lengths=tuple(self.queue_lengths),
            pageable_copies=self.copies.pageable,
            blocking_copies=self.copies.blocking,
            copy_site=self.copies.site,
        )


def _finished_batches(iterator: Any) -> int | None:
    """How many batches the workers have ready: those that arrived, those on their way to be pinned, and those that
    came too early for their turn. None without workers, and where the system cannot count a queue (macOS)."""
    arrived = getattr(iterator, "_data_queue", None)
    if arrived is None:
        return None
    from_workers = getattr(iterator, "_worker_result_queue", arrived)
    try:
        queued = int(arrived.qsize()) + (0 if from_workers is arrived else int(from_workers.qsize()))
    except (NotImplementedError, AttributeError, OSError):
        return None
    early = getattr(iterator, "_task_info", {})
    return queued + sum(len(task) == 2 for task in early.values())
