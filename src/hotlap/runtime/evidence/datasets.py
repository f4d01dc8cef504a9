"""Profile the loading of samples: fetch some of them in this process, under a profiler.

This happens after the measured part of the script, when its random numbers, losses and memory no longer matter. The
user's code runs on a thread of its own, so that a hang or an unexpected exception loses only its own evidence.
"""

from __future__ import annotations

import copy
import cProfile
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from hotlap.evidence import DatasetProfile, FunctionTime
from hotlap.records import CallSite
from hotlap.runtime.batches import tensors
from hotlap.runtime.call_sites import is_users, user_site
from hotlap.runtime.evidence.calling_lines import Callers, calling_line
from hotlap.runtime.evidence.calling_lines import Code as _Code

MOST_SAMPLES = 64
WANTED_SECONDS = 1.0
LIMIT_SECONDS = 5.0
"""How long one data set may delay the end of the script, if a single sample takes long."""

MOST_TOGETHER = 8
MOST_FUNCTIONS = 24
PORTIONS = 5
"""Samples are divided among so many profilers, and the median counts: if the system suspends the thread for a while,
only one of them attributes that time to the wrong function. Samples are collated as often."""

SAMPLES_BEFORE = 2
"""The samples fetched first: they open files and import modules, and show whether an accelerator is used."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_PARTS_OF_A_FUNCTION = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_DEEPEST_NESTING = 4
_PROFILERS_SEE_ALL_THREADS = 0x030C0000
_WAITS = frozenset({"join", "_wait_for_tstate_lock"})
_LONGEST_WAIT_SECONDS, _POLL_SECONDS = 0.2, 0.002
_CLOCK = "<built-in method time.perf_counter>"
_OWN_FOLDER = str(Path(__file__).parent)


def profile_dataset(torch: Any, loader: Any, site: CallSite | None) -> DatasetProfile | None:
    """Fetch samples of ``loader``'s data set and collate them, as a loader without workers would.

    An iterable data set is iterated again. None for a data set that is neither iterable nor indexed by integers, and
    if a fetch failed or took longer than the limit.
    """
    size = _length(torch, loader.dataset)
    if not size:
        return None
    fetching = _Fetching(torch, loader, size)
    thread = threading.Thread(target=fetching.run, args=(threading.get_ident(),), name="hotlap-samples", daemon=True)
    silent = _Silence(thread)
    try:
        thread.start()
    except RuntimeError:  # from Python 3.12 on there are no new threads once the interpreter shuts down
        silent.end()
        return None
    thread.join(LIMIT_SECONDS)
    finished = not thread.is_alive()
    silent.end()
    if not finished or not fetching.complete:
        return None
    return fetching.result(site)


def _is_stream(torch: Any, dataset: Any) -> bool:
    return isinstance(dataset, torch.utils.data.IterableDataset)


def _length(torch: Any, dataset: Any) -> int:
    """How many samples there are to choose from; for an iterable data set as many as wanted."""
    if _is_stream(torch, dataset):
        return MOST_SAMPLES + SAMPLES_BEFORE
    if not hasattr(dataset, "__getitem__"):
        return 0
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return 0


def _batch_size(loader: Any) -> int:
    """How many samples are collated together; 0 for a loader without batches.

    A loader with a batch sampler has no batch size of its own.
    """
    if loader.batch_sampler is None:
        return 0
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) and size > 0 else MOST_TOGETHER


class _Silence:
    """Do not print the exceptions of one thread; handle those of others as before."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread
        self._before = threading.excepthook
        threading.excepthook = self._raised

    def _raised(self, raised: threading.ExceptHookArgs) -> None:
        if raised.thread is not self._thread:
            self._before(raised)

    def end(self) -> None:
        if self._thread.is_alive():
            return  # it may still raise
        threading.excepthook = self._before


@dataclass
class _Portion:
    """A portion of the samples or of collation: the work inside its ``with`` block."""

    profiler: cProfile.Profile = field(default_factory=cProfile.Profile)
    samples: int = 0
    seconds: float = 0.0
    _began: float = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()
        self.profiler.enable()

    def __exit__(self, *raised: object) -> None:
        self.profiler.disable()
        self.seconds += time.perf_counter() - self._began


class _Fetching:
    """The work of the thread and its results; ``complete`` says whether it finished."""

    def __init__(self, torch: Any, loader: Any, size: int) -> None:
        self._torch = torch
        self._dataset = loader.dataset
        self._collate = loader.collate_fn
        self._batch_size = _batch_size(loader)
        self._size = size
        # torch fetches all samples of a batch at once if the data set supports it.
        self._together = self._batch_size > 0 and bool(getattr(loader.dataset, "__getitems__", None))
        self._is_stream = _is_stream(torch, loader.dataset)
        self._stream: Iterator[Any] | None = None
        self._device = torch.cuda.current_device() if torch.cuda.is_initialized() else None
        self._portions = tuple(_Portion() for _ in range(PORTIONS))
        self._collating: list[_Portion] = []
        self._whole_batches: list[Any] = []
        self._accelerator_calls: tuple[CallSite, ...] = ()
        self._sample_devices: tuple[str, ...] = ()
        self.complete = False

    def run(self, waiting_thread: int) -> None:
        """Fetch and collate, once the thread of that number waits for this one to end."""
        _await_its_wait(waiting_thread)
        if self._device is not None:
            self._torch.cuda.set_device(self._device)  # a thread begins with the first one
        indices = _spread(self._size, MOST_SAMPLES + SAMPLES_BEFORE)
        self._watch(indices[:SAMPLES_BEFORE])
        samples = self._fetch_all(indices[SAMPLES_BEFORE:] or indices)
        self._collate_repeatedly(samples)

    def _watch(self, indices: list[int]) -> None:
        watch = _accelerator_watch(self._torch)
        with watch:
            samples = self._fetch(indices)
        devices = {str(it.device.type) for it in tensors(samples)}
        self._accelerator_calls = tuple(watch.sites)
        self._sample_devices = tuple(sorted(devices))

    def _fetch_all(self, indices: list[int]) -> list[Any]:
        """The samples; a result of ``__getitems__`` that is not a list is stored separately."""
        until = time.perf_counter() + WANTED_SECONDS
        together = min(self._batch_size, MOST_TOGETHER) if self._together else 1
        samples: list[Any] = []
        for turn, start in enumerate(range(0, len(indices), together)):
            portion = self._portions[turn % PORTIONS]
            wanted = indices[start : start + together]
            with portion:
                fetched = self._fetch(wanted)
            if self._together and not (isinstance(fetched, list) and len(fetched) == len(wanted)):
                portion.samples += len(wanted)
                self._whole_batches.append(fetched)
            else:
                portion.samples += len(fetched)
                samples += fetched
            if time.perf_counter() > until:
                break
        return samples

    def _fetch(self, indices: list[int]) -> Any:
        """A list of samples, or the result of ``__getitems__``."""
        if self._is_stream:
            # In the thread: an iterable data set may do all of its work at the start.
            self._stream = iter(self._dataset) if self._stream is None else self._stream
            return list(islice(self._stream, len(indices)))
        if self._together:
            return self._dataset.__getitems__(indices)
        return [self._dataset[index] for index in indices]

    def _collate_repeatedly(self, samples: list[Any]) -> None:
        """Collate several times; the evidence is complete after the first, since repetition may fail.

        A collate function may modify its samples, so each repetition gets its own.
        """
        if not (samples or self._whole_batches):
            return
        until = time.perf_counter() + WANTED_SECONDS / 2
        rounds = [(_own_copies(samples), _own_copies(self._whole_batches)) for _ in range(PORTIONS)]
        for round_samples, round_batches in rounds:
            portion = _Portion()
            with portion:
                self._collate_all(round_samples, round_batches)
            self._collating.append(portion)
            self.complete = True
            if time.perf_counter() + portion.seconds > until:
                return

    def _collate_all(self, samples: list[Any], whole_batches: list[Any]) -> None:
        """Collate in batches of the loader's own size, or one sample at a time without batches.

        The result of ``__getitems__`` is passed on unchanged, as in torch.
        """
        for batch in whole_batches:
            self._collate(batch)
        if not self._batch_size:
            for sample in samples:
                self._collate(sample)
            return
        for start in range(0, len(samples), self._batch_size):
            self._collate(samples[start : start + self._batch_size])

    def result(self, site: CallSite | None) -> DatasetProfile:
        kind = type(self._dataset)
        portions = [it for it in self._portions if it.samples]
        samples = sum(it.samples for it in portions)
        collate_seconds = median(it.seconds for it in self._collating)
        return DatasetProfile(
            dataset=kind.__name__,
            samples=samples,
            seconds=samples * median(it.seconds / it.samples for it in portions) + collate_seconds,
            functions=_functions(portions, self._collating),
            collate_seconds=collate_seconds,
            collate_site=_place_of_function(self._collate),
            accelerator_calls=self._accelerator_calls,
            sample_devices=self._sample_devices,
            site=_place_of(kind, "__iter__" if self._is_stream else "__getitem__") or site,
        )


def _await_its_wait(thread: int) -> None:
    """Return once the thread is inside of ``join``: from Python 3.12 on a profiler also sees the calls of other
    threads, and takes what runs between two of them for their work."""
    before, until = None, time.perf_counter() + _LONGEST_WAIT_SECONDS
    while sys.hexversion >= _PROFILERS_SEE_ALL_THREADS and time.perf_counter() < until:
        frame = sys._current_frames().get(thread)
        place = (frame.f_code, frame.f_lasti) if frame is not None else None
        if place is not None and place == before and place[0].co_name in _WAITS:
            return
        before = place
        time.sleep(_POLL_SECONDS)


def _own_copies(samples: Sequence[Any]) -> list[Any]:
    """The same samples in copied dictionaries and lists, which a collate function may empty."""
    return [copy.copy(it) if isinstance(it, MutableMapping | list) else it for it in samples]


def _spread(size: int, wanted: int) -> list[int]:
    """Distinct indices from the whole data set in random order: neighbours are often stored in one file."""
    count = min(size, wanted)
    stride = max(1, round(count * 0.618))
    while count > 1 and _common_divisor(stride, count) > 1:
        stride += 1
    return [(position * stride % count) * size // count for position in range(count)]


def _common_divisor(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


def _place_of(kind: type, method: str) -> CallSite | None:
    """The line where the user's data set loads a sample."""
    code = getattr(getattr(kind, method, None), "__code__", None)
    if code is None or not is_users(code.co_filename):
        return None
    return CallSite(
        role="loader", file=code.co_filename, line=code.co_firstlineno, function=code.co_name, what=kind.__name__
    )


def _place_of_function(function: Any) -> CallSite | None:
    """The line where the user's own function, or object that can be called, begins."""
    called = function if hasattr(function, "__code__") else vars(type(function)).get("__call__")
    code = getattr(called, "__code__", None)
    if code is None or not is_users(code.co_filename):
        return None
    return CallSite(role="loader", file=code.co_filename, line=code.co_firstlineno, function=code.co_name)


# ---------------------------------------------------------------------------------------------
# What the profiler recorded
# ---------------------------------------------------------------------------------------------


class _Times(NamedTuple):
    """A profiler's record of one function, in seconds."""

    calls: int
    own: float
    total: float


_NEVER = _Times(0, 0.0, 0.0)


def _functions(portions: Sequence[_Portion], collating: Sequence[_Portion]) -> tuple[FunctionTime, ...]:
    """The functions with the most own time, without ours and the profiler's. C functions have no line."""
    tables = [_times(it.profiler) for it in portions]
    samples = [it.samples for it in portions]
    collated = [_times(it.profiler) for it in collating]
    found: dict[_Code, _Times] = {}
    for code in dict.fromkeys(it for table in (*tables, *collated) for it in table):
        fetching = _usual([table.get(code, _NEVER) for table in tables], samples)
        other = _middle([table.get(code, _NEVER) for table in collated])
        found[code] = _Times(fetching.calls + other.calls, fetching.own + other.own, fetching.total + other.total)
    longest = sorted((it for it in found if found[it].own > 0), key=lambda it: -found[it].own)
    callers = _callers([it.profiler for it in (*portions, *collating)])
    return tuple(_function(it, found[it], callers) for it in longest[:MOST_FUNCTIONS])


def _callers(profilers: Sequence[cProfile.Profile]) -> dict[_Code, dict[_Code, float]]:
    """The time of each pair of caller and callee, over all profilers."""
    found: dict[_Code, dict[_Code, float]] = {}
    for profiler in profilers:
        for entry in profiler.getstats():
            for callee in entry.calls or ():
                of_callee = found.setdefault(callee.code, {})
                of_callee[entry.code] = of_callee.get(entry.code, 0.0) + callee.totaltime
    return found


def _usual(times: Sequence[_Times], samples: Sequence[int]) -> _Times:
    """The seconds of a function for all samples, from the median of the portions."""
    own, total = (
        sum(samples) * median(seconds / count for seconds, count in zip(column, samples, strict=True))
        for column in ([it.own for it in times], [it.total for it in times])
    )
    return _Times(sum(it.calls for it in times), own, total)


def _middle(times: Sequence[_Times]) -> _Times:
    """The median of a function that did the same work every time."""
    return _Times(
        round(median(it.calls for it in times)), median(it.own for it in times), median(it.total for it in times)
    )


def _times(profiler: cProfile.Profile) -> dict[_Code, _Times]:
    """The functions in a profiler, without ours and its own.

    From Python 3.12 on a profiler sees the calls of all threads (:func:`_await_its_wait`). Of a call that has not
    ended, as that of ``join``, it may know who made it and nothing else.
    """
    entries = {it.code: it for it in profiler.getstats()}
    callers: dict[_Code, dict[_Code, float]] = {code: {} for code in entries}
    for caller, entry in entries.items():
        for callee in entry.calls or ():
            if callee.code in callers:
                callers[callee.code][caller] = callee.inlinetime
    own = _own_seconds(entries, callers)
    kept = (it for it in entries if own[it] > 0 and not _is_ours(it, callers[it]))
    return {it: _Times(entries[it].callcount, own[it], entries[it].totaltime) for it in kept}


def _own_seconds(entries: Mapping[_Code, Any], callers: Mapping[_Code, Mapping[_Code, float]]) -> dict[_Code, float]:
    """Own time by function. A comprehension counts as part of the function that contains it."""
    own = {code: entry.inlinetime for code, entry in entries.items()}
    for _ in range(_DEEPEST_NESTING):
        for code in entries:
            around = {it: seconds for it, seconds in callers[code].items() if _file_of(it) == _file_of(code)}
            whole = sum(around.values())
            if _name_of(code) in _PARTS_OF_A_FUNCTION and own[code] and whole:
                for caller, seconds in around.items():
                    own[caller] += own[code] * seconds / whole
                own[code] = 0.0
    return own


def _file_of(code: _Code) -> str:
    return "" if isinstance(code, str) else code.co_filename


def _name_of(code: _Code) -> str:
    return code if isinstance(code, str) else code.co_name


def _is_ours(code: _Code, callers: Mapping[_Code, float]) -> bool:
    """A function of this file, or one of Python's own that is called from here alone."""
    if isinstance(code, str):
        if code.startswith("<built-in method builtins."):
            return all(_file_of(caller).startswith(_OWN_FOLDER) for caller in callers)
        return "_lsprof.Profiler" in code or code == _CLOCK
    return code.co_filename.startswith(_OWN_FOLDER)


def _function(code: _Code, found: _Times, callers: Callers) -> FunctionTime:
    times: dict[str, Any] = {"calls": found.calls, "own_seconds": found.own, "total_seconds": found.total}
    if isinstance(code, str) or not is_users(code.co_filename):
        times["caller"] = calling_line(code, callers)
    if isinstance(code, str):
        return FunctionTime(name=_ADDRESS.sub("", code.strip("<>")), **times)
    return FunctionTime(name=code.co_name, file=code.co_filename, line=code.co_firstlineno, **times)


def _accelerator_watch(torch: Any) -> Any:
    """A context that observes every torch function of this thread.

    ``sites`` are the user's lines where one computed on an accelerator, or moved a tensor there.
    """
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.sites: dict[CallSite, None] = {}

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if any(it.device.type != "cpu" for it in tensors(result)):
                site = user_site("copy", getattr(function, "__name__", ""))
                if site is not None:
                    self.sites[site] = None
            return result

    return Watch()
