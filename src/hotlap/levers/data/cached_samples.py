"""Each sample is prepared once and cached in memory, or in a file.

## What it does
Many data sets compute the same sample from the same index in every epoch: they decode, resize, normalise, tokenise.
Before the first epoch of a training `DataLoader` over a map-style data set, every sample is prepared once and cached;
from then on a copy of it is returned. Forked workers share the cache. At the start of each epoch some samples are
prepared again and compared: if one differs, the cache is dropped and the data set is read as before.

Samples that do not fit into memory are cached in a memory-mapped file if the option `--sample-cache` names the bytes
that it may take (`file_bytes` in a plan). In trials it is stored next to the study, with `hotlap run` in the folder
for temporary files. It has no name and takes at most half of the disk's free space; its space is free again when the
processes that share it have ended. Each training process has a file of its own.

## When it helps
If the step waits for data, preparing a sample takes longer than copying it, all samples fit into memory or into the
file, and there is more than one epoch.

## What it costs
Memory or disk space for all samples, and a longer start, since one process prepares them all. The first epoch gains
nothing overall, since its work is only done earlier.

Not changed, with a note: data sets that draw random numbers, that return different samples for the same index, that
have a `set_epoch` method, or that return objects other than tensors, arrays, numbers and text (in tuples, lists and
dictionaries). Random augmentation on top of a decoded file counts as random: keep the decoded file in the data set.

## Before
    def __getitem__(self, index):
        return prepare(self.files[index])

## After
    def __init__(self, files):
        self.samples = [prepare(file) for file in files]

    def __getitem__(self, index):
        return self.samples[index]

## What is proved
`exact`: the same samples in the same batches, and losses that agree to the last bit.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from hotlap.levers.api import Parameter
from hotlap.levers.support.evaluation import evaluation_watch
from hotlap.levers.support.sample_file import SampleFile, TooLarge
from hotlap.levers.support.situations import bound_without_wait, make_setting
from hotlap.records import (
    LoaderFacts,
    NoSourceForm,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
)
from hotlap.wording import share

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Fetch, Hooks

title = "Samples prepared once and cached"
proof: Proof = "exact"
addresses = ("loader-bound", "crowded-cores", "slow-transform")
parameters = {"file_bytes": Parameter(int, minimum=1, required=False)}

NAME = "cached-samples"
MEMORY_SHARE = 0.2
"""How much of the machine's memory the samples of all processes may take."""

MOST_SECONDS = 120.0
"""How long preparing all samples may take in a trial."""

_PROBES = 8
_PLAIN = (int, float, complex, bool, str, bytes, type(None))


def obstacle(situation: Situation) -> Skipped | None:
    """Require a training loader with deterministic samples that fit into memory and are read repeatedly."""
    loaders = situation.facts.training_loaders
    if not loaders:
        return Skipped(reason="The script feeds its steps without a DataLoader.")
    if any(it.iterable or it.length is None or it.batch_size is None for it in loaders):
        return Skipped(reason="The data set is iterable, or its length is unknown: samples have no index.")
    if any(it.draws_random for it in loaders):
        return Skipped(reason="Fetching a sample draws random numbers, so it differs each time.")
    if not _fits_into_memory(situation) and _size(situation) > situation.sample_cache_bytes * situation.facts.processes:
        return Skipped(
            reason=f"All samples take about {_size(situation) / 1e9:.1f} GB, more than {share(MEMORY_SHARE)} of this "
            "machine's memory. `--sample-cache` allows a file of a given size for them."
        )
    seconds = sum(map(_samples, loaders)) * _seconds_per_sample(situation)
    if seconds > MOST_SECONDS:
        return Skipped(
            reason=f"Preparing all samples once would take about {seconds:.0f} s, more than {MOST_SECONDS:.0f} s."
        )
    return None


def bound(situation: Situation) -> float | None:
    """The largest gain is to remove the whole data wait; none is known where workers take cores from the training."""
    return bound_without_wait(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """In memory where all samples fit, else in a file."""
    if _fits_into_memory(situation):
        return (make_setting(NAME),)
    return (make_setting(NAME, file_bytes=max(1, situation.sample_cache_bytes)),)


def _fits_into_memory(situation: Situation) -> bool:
    """Whether a part of the memory holds them, or how much there is is unknown."""
    allowed = MEMORY_SHARE * situation.machine.memory_bytes
    return not _size(situation) > allowed > 0


def _size(situation: Situation) -> float:
    """The bytes of the samples of all processes."""
    return sum(map(_bytes, situation.facts.training_loaders)) * situation.facts.processes


def _samples(loader: LoaderFacts) -> int:
    return (loader.length or 0) * (loader.batch_size or 0)


def _bytes(loader: LoaderFacts) -> float:
    return (loader.length or 0) * loader.batch_bytes


def _seconds_per_sample(situation: Situation) -> float:
    """Return the seconds that one process takes per sample; 0 if unknown.

    They come from timing the loader alone, or else from the step's data wait.
    """
    alone = [
        it.seconds_per_sample
        for it in situation.loader_rates
        if not it.error and dict(it.setting.values).get("num_workers") == 0
    ]
    if alone:
        return min(alone)
    if any(it.workers for it in situation.facts.training_loaders):
        return 0.0
    return situation.account.seconds_in("data_wait") / max(1.0, situation.account.samples_per_step)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Data sets prepare their samples in too many different ways."""
    return (NoSourceForm(reason="Keep the prepared samples in the data set, as the lever's page shows."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Make each training loader's iterators read cached samples, if that is safe."""
    evaluates = evaluation_watch(hooks)
    file_bytes = int(dict(setting.values).get("file_bytes", 0))
    kept: WeakKeyDictionary[Any, KeptSamples | None] = WeakKeyDictionary()

    def start_epoch(loader: Any, start: Fetch) -> Any:
        if loader not in kept:
            if evaluates():
                return start()
            kept[loader] = _keep(hooks, loader, file_bytes)
        samples = kept[loader]
        if samples is not None and not samples.still_the_same():
            hooks.note(f"The samples of {type(loader.dataset).__name__} are no longer cached: they have changed.")
            samples = kept[loader] = None
        if samples is None:
            return start()
        # Not by assignment, which DataLoader refuses. Scripts that look at `loader.dataset` find their own again.
        vars(loader)["dataset"] = samples
        try:
            return start()
        finally:
            vars(loader)["dataset"] = samples.dataset

    hooks.around_loader_start.append(start_epoch)


class KeptSamples:
    """A data set that returns copies of another one's samples and forwards all other attributes to it.

    They are in memory, or in a file of at most ``file_bytes`` bytes if that is not 0.
    """

    def __init__(self, torch: Any, dataset: Any, file_bytes: int = 0) -> None:
        self.dataset = dataset
        self._torch = torch
        self._file_bytes = file_bytes
        self._samples: list[Any] | SampleFile = []
        self._chosen = random.Random(0)

    def fill(self) -> str:
        """Prepare all samples; return why that is impossible, or nothing."""
        random_state = _random_state(self._torch)
        for number in _spread(len(self.dataset)):
            sample = _fetch(self.dataset, number)
            if not _is_plain(self._torch, sample):
                return f"its samples are of a type that cannot be copied ({type(sample).__name__})"
            if not _equal(self._torch, sample, _fetch(self.dataset, number)):
                return "it returns different samples for the same index"
            if _random_state(self._torch) != random_state:
                return "it draws random numbers"
        try:
            self._samples = self._filled()
        except TooLarge:
            return f"they take more than the file of {self._file_bytes / 1e9:g} GB, or than half of the free space"
        if _random_state(self._torch) != random_state:
            return "it draws random numbers"
        return ""

    def _filled(self) -> list[Any] | SampleFile:
        if not self._file_bytes:
            return [_copied(self._torch, _fetch(self.dataset, number)) for number in range(len(self.dataset))]
        file = SampleFile(self._torch, _folder(), self._file_bytes)
        try:
            for number in range(len(self.dataset)):
                file.add(_fetch(self.dataset, number))
            file.close()
        except TooLarge:
            file.discard()
            raise
        return file

    def still_the_same(self) -> bool:
        """Whether the data set still returns the same samples, judged by some of them."""
        if len(self.dataset) != len(self._samples):
            return False
        numbers = [self._chosen.randrange(len(self._samples)) for _ in range(min(_PROBES, len(self._samples)))]
        return all(_equal(self._torch, self._samples[it], _fetch(self.dataset, it)) for it in numbers)

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, number: Any) -> Any:
        if type(number) is int and 0 <= number < len(self._samples):
            return _copied(self._torch, self._samples[number])
        return self.dataset[number]

    def __getattr__(self, name: str) -> Any:
        if name in ("dataset", "__getitems__") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_torch"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _torch=sys.modules["torch"])


def _folder() -> str:
    """The run's folder below the study, which is on a disk with room for it; else that for temporary files."""
    return os.environ.get("HOTLAP_RUN_DIRECTORY") or tempfile.gettempdir()


def _keep(hooks: Hooks, loader: Any, file_bytes: int) -> KeptSamples | None:
    """Return the cached samples of a loader's data set; None, with a note, if they cannot be cached."""
    torch, dataset = hooks.torch, loader.dataset
    reason = ""
    samples = KeptSamples(torch, dataset, file_bytes)
    if isinstance(dataset, torch.utils.data.IterableDataset):
        reason = "it is iterable"
    elif loader._iterator is not None:
        reason = "its workers have started already"
    elif hasattr(dataset, "set_epoch"):
        reason = "its samples depend on the epoch (set_epoch)"
    elif not len(dataset):
        reason = "it is empty"
    else:
        reason = samples.fill()
    if reason:
        hooks.note(f"The samples of {type(dataset).__name__} are not cached: {reason}.")
        return None
    return samples


def _spread(length: int) -> list[int]:
    """Return evenly spaced indices from the first sample to the last."""
    count = min(_PROBES, length)
    return [number * (length - 1) // max(1, count - 1) for number in range(count)]


def _fetch(dataset: Any, number: int) -> Any:
    """Return a sample in the way torch's own fetcher does."""
    together = getattr(dataset, "__getitems__", None)
    return together([number])[0] if together else dataset[number]


def _random_state(torch: Any) -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    of_numpy = numpy.random.get_state() if numpy is not None else ()
    return (random.getstate(), torch.get_rng_state().tolist(), tuple(map(_as_text, of_numpy)))


def _as_text(part: Any) -> str:
    return str(part.tolist()) if hasattr(part, "tolist") else str(part)


def _is_plain(torch: Any, sample: Any) -> bool:
    """Whether it can be copied exactly."""
    if type(sample) in (tuple, list):
        return all(_is_plain(torch, it) for it in sample)
    if type(sample) is dict:
        return all(type(key) in _PLAIN and _is_plain(torch, it) for key, it in sample.items())
    if type(sample) is torch.Tensor:
        return sample.device.type == "cpu" and sample.layout is torch.strided and not sample.requires_grad
    return type(sample) in _PLAIN or _is_array(sample)


def _is_array(sample: Any) -> bool:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    is_array = type(sample) is numpy.ndarray and not sample.dtype.hasobject
    return is_array or (isinstance(sample, numpy.generic) and not sample.dtype.hasobject)


def _copied(torch: Any, sample: Any) -> Any:
    if type(sample) in (tuple, list):
        return type(sample)(_copied(torch, it) for it in sample)
    if type(sample) is dict:
        return {key: _copied(torch, it) for key, it in sample.items()}
    if type(sample) is torch.Tensor:
        return sample.clone()
    return sample if type(sample) in _PLAIN else sample.copy()


def _equal(torch: Any, one: Any, other: Any) -> bool:
    """Whether two samples are the same to the last bit."""
    if type(one) is not type(other):
        return False
    if type(one) in (tuple, list):
        return len(one) == len(other) and all(_equal(torch, *it) for it in zip(one, other, strict=True))
    if type(one) is dict:
        return list(one) == list(other) and all(_equal(torch, one[key], other[key]) for key in one)
    if type(one) is torch.Tensor:
        alike = one.shape == other.shape and one.dtype is other.dtype
        return bool(alike and torch.equal(_bits(torch, one), _bits(torch, other)))
    if _is_array(one):
        return bool(one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes())
    return bool(one == other) or (one != one and other != other)


def _bits(torch: Any, tensor: Any) -> Any:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
