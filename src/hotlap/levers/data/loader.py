"""Worker processes load batches ahead of time, into pinned memory.

## What it does
Replaces the arguments of each `DataLoader` over a map-style data set that training reads: the number of workers, pinned
memory, how many batches each worker prepares ahead, and whether workers persist after an epoch. The script's own
arguments are replaced too. A loader that is only read without gradients, or while the models are in evaluation mode, is
not changed. Batches in pinned memory are copied to the GPU without waiting (`non_blocking=True`). The number of workers
is measured: the loader is first timed alone with several numbers, and the fewest that are within 2 % of the best, or
faster than the model, are tried. In CPU training they are also tried with fewer threads for torch itself (`threads`),
so that each worker has a free core.

## When it helps
If the step waits for data: decoding and augmenting in Python, slow disks, collating large batches.

## What it costs
Each worker is a process with its own memory, started once with `persistent_workers`, otherwise once per epoch. On a CPU
the workers compete with training for cores. Finished batches are in shared memory (`/dev/shm`), which limits workers
and prefetching.

Not changed, with a note: loaders over an `IterableDataset`, whose data depends on the number of workers; data sets that
hold tensors on a GPU, or that cannot be sent to a worker; loaders within a daemonic process. Workers do not persist if
the data set has a `set_epoch` method, whose calls they would not see.

## Before
    loader = DataLoader(dataset, batch_size=64, shuffle=True)

## After
    loader = DataLoader(dataset, batch_size=64, shuffle=True,
                        num_workers=4, pin_memory=True, persistent_workers=True)

## What is proved
`exact`: the same samples in the same batches, and losses that agree to the last bit. If fetching draws random numbers
(augmentation), each worker has its own stream, so every sample is augmented differently, although from the same
distribution: the proof is then `rounding`, in launches where the same samples are augmented alike, whoever fetches
them. With fewer threads sums are added in another order, and the proof is `rounding` too.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from hotlap.levers.api import Parameter
from hotlap.levers.support.device_copies import Copy, answer_copies, tensors_in, weak_table
from hotlap.levers.support.evaluation import evaluation_watch
from hotlap.levers.support.situations import (
    bound_without,
    bound_without_wait,
    cores_per_process,
    device_kind,
    is_nvidia_like,
    make_setting,
)
from hotlap.records import (
    CopiesWithoutWaiting,
    LoaderArguments,
    LoaderFacts,
    LoaderRate,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
    TopStatement,
    Value,
)

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Fetch, Hooks

title = "Worker processes load batches ahead of time"
proof: Proof = "exact"
addresses = (
    "loader-bound",
    "no-workers",
    "too-many-workers",
    "crowded-cores",
    "slow-transform",
    "short-queue",
    "worker-startup",
    "pageable-copies",
    "blocking-copies",
)
parameters = {
    "num_workers": Parameter(int, minimum=0, maximum=256),
    "pin_memory": Parameter(bool, required=False),
    "persistent_workers": Parameter(bool, required=False),
    "prefetch_factor": Parameter(int, minimum=1, maximum=64, required=False),
    "threads": Parameter(int, minimum=1, maximum=1024, required=False),
}

NAME = "loader"
USUAL_PREFETCH = 2  # torch's own default
DEEP_PREFETCH = 4
CLOSE_TO_BEST = 1.02
MOST_WORKERS = 64
_ARGUMENTS = {
    "num_workers": 0,
    "pin_memory": False,
    "prefetch_factor": None,
    "persistent_workers": False,
    "timeout": 0,
}
"""Attributes of a DataLoader that it has from its arguments, with what they are without workers."""

SHARED_MEMORY_SHARE = 0.5  # of /dev/shm; the rest is for other users of it


def obstacle(situation: Situation) -> Skipped | None:
    """Require a map-style loader whose arguments can be replaced."""
    loaders = situation.facts.loaders
    if not loaders:
        return Skipped(reason="The script feeds its steps without a DataLoader.")
    if not _map_style(situation):
        return Skipped(
            reason="The data set is iterable: a different number of workers would return different "
            "data, so it is not changed."
        )
    if not candidates(situation):
        workers = _map_style(situation)[0].workers
        return Skipped(reason=f"No other number of workers is faster than the loader's {workers}.", already=True)
    return None


def bound(situation: Situation) -> float | None:
    """The largest gain is to remove the whole data wait, and unpinned copies; none is known where workers already take
    cores from the training."""
    if is_nvidia_like(situation) and not all(loader.pin_memory for loader in _map_style(situation)):
        return bound_without(situation, "data_wait", "host_to_device")
    return bound_without_wait(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """By the rates of the loader alone: the fewest workers whose step is within 2 % of the best one's, and the fewest
    within 2 % of the best rate; without a sweep, one for each core up to four.

    Without workers a step is fetching *plus* computing; with any, the slower of the two, since they go on side by side.
    So a single worker that is no faster than the main process may still be worth having. On a CPU, where workers and
    training share the cores, fewer is the better guess.
    """
    rates = [rate for rate in situation.loader_rates if not rate.error and rate.seconds_per_sample > 0]
    if not rates:
        guess = _setting(situation, workers=min(4, cores_per_process(situation)))
        return _that_change_something(situation, (guess,))
    steps = {rate: _step_seconds_per_sample(situation, rate) for rate in rates}
    best_step, best_rate = min(steps.values()), min(rate.seconds_per_sample for rate in rates)
    shortest_step = _fewest(rate for rate, seconds in steps.items() if seconds <= best_step * CLOSE_TO_BEST)
    near_best = _fewest(rate for rate in rates if rate.seconds_per_sample <= best_rate * CLOSE_TO_BEST)
    if device_kind(situation) != "cpu":
        found = [near_best, shortest_step]
    else:
        found = [_with_room(situation, shortest_step), shortest_step, _with_room(situation, near_best), near_best]
    return _that_change_something(situation, tuple(dict.fromkeys(it for it in found if it is not None)))


def sweep_candidates(situation: Situation) -> tuple[Setting, ...]:
    """The settings to time the loader alone with: no worker, then powers of two up to the cores of this process, as far
    as the batches that wait fit into shared memory."""
    if not _map_style(situation):
        return ()
    cores = min(cores_per_process(situation), MOST_WORKERS)
    counts = sorted({0, cores, *(2**power for power in range(7) if 2**power <= cores)})
    settings = [
        _setting(situation, workers=count) for count in counts if _fits_shared_memory(situation, count, USUAL_PREFETCH)
    ]
    if _fits_shared_memory(situation, cores, DEEP_PREFETCH):
        settings.append(_setting(situation, workers=cores, prefetch=DEEP_PREFETCH))
    return tuple(settings)


def proof_for(situation: Situation, setting: Setting) -> Proof:
    """Random numbers drawn while fetching come from other streams in workers: other draws, the same distribution. Fewer
    threads add up in another order."""
    fewer_threads = dict(setting.values).get("threads", situation.facts.threads) != situation.facts.threads
    return "rounding" if fewer_threads or changes_randomness(situation, setting) else "exact"


def changes_randomness(situation: Situation, setting: Setting) -> bool:
    """Whether a data set draws random numbers while fetching."""
    return any(loader.draws_random for loader in _map_style(situation))


def edited(arguments: dict[str, Any], setting: Setting) -> dict[str, Any]:
    """Return the constructor's arguments with the setting's values, as ``DataLoader`` accepts them."""
    values = dict(setting.values)
    workers = int(values["num_workers"])
    result = {**arguments, "num_workers": workers, "pin_memory": bool(values.get("pin_memory", False))}
    if workers > 0:
        result["prefetch_factor"] = values.get("prefetch_factor", USUAL_PREFETCH)
        result["persistent_workers"] = bool(values.get("persistent_workers", False))
        if hasattr(arguments.get("dataset"), "set_epoch"):
            result["persistent_workers"] = False
    else:
        for only_with_workers in ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context"):
            result.pop(only_with_workers, None)
    return result


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The arguments of the training loaders; copies that need not wait, and torch's threads, where the setting says."""
    values = dict(setting.values)
    arguments: dict[str, Value] = {"num_workers": int(values["num_workers"])}
    if values.get("pin_memory"):
        arguments["pin_memory"] = True
    only_with_workers = ("prefetch_factor", "persistent_workers")
    if values["num_workers"]:
        arguments["prefetch_factor"] = int(values.get("prefetch_factor", USUAL_PREFETCH))
        arguments["persistent_workers"] = bool(values.get("persistent_workers", False))
    removed = [] if values["num_workers"] else [*only_with_workers, "timeout", "multiprocessing_context"]
    if not values.get("pin_memory"):
        removed.append("pin_memory")
    changes: list[SourceChange] = [LoaderArguments(values=tuple(arguments.items()), removed=tuple(removed))]
    if values.get("pin_memory") and facts.device.startswith("cuda"):
        changes.append(CopiesWithoutWaiting())
    if "threads" in values:
        name = "torch.set_num_threads"
        changes.append(TopStatement(code=f"{name}({values['threads']})", needs=(name,)))
    return tuple(changes)


def install(hooks: Hooks, setting: Setting) -> None:
    """Replace each loader's arguments when training first reads it: only then it is known to train."""
    evaluates = evaluation_watch(hooks)
    change_loaders(hooks, setting, lambda: not evaluates())
    if "threads" in dict(setting.values):
        hooks.torch.set_num_threads(dict(setting.values)["threads"])
    if dict(setting.values).get("pin_memory"):
        copy_without_waiting(hooks)


def change_loaders(hooks: Hooks, setting: Setting, concerned: Callable[[], bool]) -> None:
    """Replace the arguments of each loader that is about to be read where ``concerned`` says so."""
    settled: WeakSet[Any] = WeakSet()
    newly_persistent: WeakSet[Any] = WeakSet()

    def settle(loader: Any) -> None:
        settled.add(loader)
        reason = _reason_to_leave(hooks, loader, setting)
        was_persistent = bool(loader.persistent_workers)
        if reason:
            hooks.note(f"A DataLoader over {type(loader.dataset).__name__} was not changed: {reason}.")
            return
        _change(loader, setting)
        if loader.persistent_workers and not was_persistent:
            newly_persistent.add(loader)

    def start_epoch(loader: Any, start: Fetch) -> Any:
        if loader not in settled and concerned():
            settle(loader)
        # A new iterator draws a base seed for its workers; workers that persist keep theirs. Without this draw every
        # later number of the script (its next shuffle, its dropout) would differ from the baseline's.
        if loader in newly_persistent and loader._iterator is not None:
            hooks.torch.empty((), dtype=hooks.torch.int64).random_(generator=loader.generator)
        return start()

    hooks.around_loader_start.append(start_epoch)


def copy_without_waiting(hooks: Hooks) -> None:
    """Copies of pinned batch tensors to a GPU return at once. Later work on the same stream comes after the copy, and
    torch's allocator of pinned memory does not reuse the source before the copy is done."""
    torch = hooks.torch
    pinned = weak_table()

    def remember(iterator: Any, fetch: Fetch) -> Any:
        batch = fetch()
        if getattr(iterator, "_pin_memory", False):
            for tensor in tensors_in(torch, batch):
                if tensor.is_pinned():
                    pinned[tensor] = True
        return batch

    def copy(tensor: Any, plain: Copy, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        said_by_position = any(isinstance(it, bool) for it in args)
        return plain(tensor, *args, **(kwargs if said_by_position else {**kwargs, "non_blocking": True}))

    hooks.around_fetch.append(remember)
    answer_copies(torch, pinned, copy)


def _map_style(situation: Situation) -> tuple[LoaderFacts, ...]:
    """Return the training loaders whose arguments can be replaced."""
    return tuple(loader for loader in situation.facts.training_loaders if not loader.iterable)


def _setting(situation: Situation, *, workers: int, prefetch: int = USUAL_PREFETCH) -> Setting:
    pin = is_nvidia_like(situation)
    if workers == 0:
        return make_setting(NAME, num_workers=0, pin_memory=pin)
    return make_setting(NAME, num_workers=workers, pin_memory=pin, persistent_workers=True, prefetch_factor=prefetch)


def _fits_shared_memory(situation: Situation, workers: int, prefetch: int) -> bool:
    available = situation.machine.shared_memory_bytes * SHARED_MEMORY_SHARE
    batch = max(loader.batch_bytes for loader in _map_style(situation))
    processes = max(1, situation.facts.processes)
    return available <= 0 or workers * prefetch * batch * processes <= available


def _fewest(rates: Iterable[LoaderRate]) -> Setting | None:
    """Return the setting with the fewest workers, then the least prefetching."""

    def effort(rate: LoaderRate) -> tuple[int, int, float]:
        values = dict(rate.setting.values)
        return int(values.get("num_workers", 0)), int(values.get("prefetch_factor", 0)), rate.seconds_per_sample

    chosen = min(rates, key=effort, default=None)
    return chosen.setting if chosen else None


def _step_seconds_per_sample(situation: Situation, rate: LoaderRate) -> float:
    """Return the step's seconds per sample with a loader of that rate."""
    account = situation.account
    computing = (account.wall - account.seconds_in("data_wait")) / max(account.samples_per_step, 1.0)
    if dict(rate.setting.values).get("num_workers", 0) == 0:
        return rate.seconds_per_sample + computing
    return max(rate.seconds_per_sample, computing)


def _with_room(situation: Situation, setting: Setting | None) -> Setting | None:
    """The setting with a core for each worker, taken from torch's own threads; None where there is room already.

    Threads that wait for one another stand still while a worker has one's core: with as many threads as cores, a busy
    worker made a step of 1 ms take 20.
    """
    if setting is None:
        return None
    workers = int(dict(setting.values)["num_workers"])
    cores, threads = cores_per_process(situation), situation.facts.threads
    left = max(1, cores - workers)
    if workers == 0 or left >= threads:
        return None
    return make_setting(NAME, **dict(setting.values), threads=left)


def _that_change_something(situation: Situation, settings: tuple[Setting, ...]) -> tuple[Setting, ...]:
    return tuple(it for it in settings if not all(_has(loader, it) for loader in _map_style(situation)))


def _has(loader: LoaderFacts, setting: Setting) -> bool:
    """Whether the script's loader already has the setting's values."""
    values = dict(setting.values)
    if loader.workers != values["num_workers"] or loader.pin_memory != values.get("pin_memory", False):
        return False
    if loader.workers and loader.persistent_workers != values.get("persistent_workers", False):
        return False
    return loader.workers == 0 or (loader.prefetch_factor or USUAL_PREFETCH) >= int(values.get("prefetch_factor", 0))


def _change(loader: Any, setting: Setting) -> None:
    """Apply the setting's values to a loader that has no iterator."""
    changed = edited({name: getattr(loader, name) for name in ("dataset", *_ARGUMENTS)}, setting)
    if not changed["num_workers"]:
        loader.multiprocessing_context = None
    # Not by assignment: DataLoader refuses `persistent_workers` once it is made, as an iterator may have read it.
    vars(loader).update({name: changed.get(name, without) for name, without in _ARGUMENTS.items()})


def _reason_to_leave(hooks: Hooks, loader: Any, setting: Setting) -> str:
    """Return why this loader is not changed; empty if it can be."""
    dataset = loader.dataset
    if isinstance(dataset, hooks.torch.utils.data.IterableDataset):
        return "its data set is iterable, and the data it returns depends on the number of workers"
    if loader._iterator is not None:
        return "an evaluation has started its persistent workers"
    if dict(setting.values)["num_workers"] == 0:
        return ""
    if multiprocessing.current_process().daemon:
        return "this process is daemonic and may not start workers"
    if _holds_device_tensors(hooks, dataset):
        return "its data set holds tensors on a device, which workers cannot read"
    return "" if _start_method(loader) == "fork" else _reason_not_sendable(loader)


def _holds_device_tensors(hooks: Hooks, dataset: Any, depth: int = 0) -> bool:
    """Check the data set's attributes, including those of wrapped data sets."""
    attributes = vars(dataset) if hasattr(dataset, "__dict__") else {}
    if any(it.device.type != "cpu" for it in tensors_in(hooks.torch, list(attributes.values()))):
        return True
    inner = (it for it in attributes.values() if isinstance(it, hooks.torch.utils.data.Dataset))
    return depth < 4 and any(_holds_device_tensors(hooks, it, depth + 1) for it in inner)


def _start_method(loader: Any) -> str:
    if loader.multiprocessing_context is not None:
        return str(loader.multiprocessing_context.get_start_method())
    # Without allow_none the method would become fixed, and the script could no longer choose another.
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or multiprocessing.get_all_start_methods()[0]


class _Nowhere:
    """A file that discards everything."""

    def write(self, data: bytes) -> int:
        return len(data)


def _reason_not_sendable(loader: Any) -> str:
    for part in ("dataset", "collate_fn", "worker_init_fn"):
        try:
            pickle.Pickler(_Nowhere()).dump(getattr(loader, part))
        except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
            return f"its {part} cannot be sent to a worker ({error})"
    return ""
