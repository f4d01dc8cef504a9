"""The loader alone: the training loader is rebuilt with each setting and drained without any model.

It takes over at the first training forward, when it is known which loader feeds the training, and ends the
process when it is done. Where the first step comes without a loader, it ends the process at once, without rates.
After steps it is the loader that fed the first of them, and the process is about to end anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pickle import PicklingError
from typing import Any, NamedTuple

from hotlap.records import LoaderRate, Setting, SweepLoader
from hotlap.runtime.hooks import Fetch, Hooks
from hotlap.runtime.instruments.api import Place
from hotlap.runtime.samples import BatchCounter

SECONDS_PER_SETTING = 1.5
MINIMUM_BATCHES = 8
MAXIMUM_BATCHES = 2000

LONGEST_ERROR = 300

_OF_A_LOADER = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    OSError,
    PicklingError,
    RuntimeError,
    StopIteration,
    TypeError,
    ValueError,
)
"""What a loader raises whose data set, or an open file of it, cannot be taken along to a worker."""

_OF_A_WORKER = "in DataLoader worker process"
"""What torch writes into the message of whatever a worker raised."""

Finish = Callable[[tuple[LoaderRate, ...]], object]


def install(place: Place, asked: SweepLoader) -> None:
    """The process ends with the rates."""
    hooks = place.hooks
    if not asked.after_steps:
        sweep_the_training_loader(hooks, asked.settings, lambda rates: place.finish(loader_rates=rates))
        return

    def sweep(arguments: dict[str, Any]) -> None:
        hooks.found["loader_rates"] = _rates(arguments, asked.settings)

    at_first_forward(hooks, lambda arguments: hooks.after_last_step.append(lambda: sweep(arguments)))


def sweep_the_training_loader(hooks: Hooks, settings: tuple[Setting, ...], finish: Finish) -> None:
    """Hang on the sweep; ``finish`` gets the rates and does not return."""

    def give_up(optimizer: Any) -> None:
        finish(())

    at_first_forward(hooks, lambda arguments: finish(_rates(arguments, settings)))
    hooks.before_update.append(give_up)


def at_first_forward(hooks: Hooks, tell: Callable[[dict[str, Any]], object]) -> None:
    """Tell the arguments of the loader that feeds the training, at the first forward that follows one."""
    arguments_of: dict[int, dict[str, Any]] = {}
    seen: list[Any] = []
    constructing: list[dict[str, Any]] = []

    def remember_arguments(arguments: dict[str, Any]) -> None:
        constructing.append(dict(arguments))

    def remember_loader(loader: Any) -> None:
        arguments_of[id(loader)] = constructing.pop()

    def start(loader: Any, begin: Fetch) -> Any:
        seen.append(loader)
        return begin()

    def take_over(root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        loaders = [it for it in seen if id(it) in arguments_of]
        if loaders:
            hooks.before_forward.remove(take_over)
            tell(arguments_of[id(loaders[-1])])
        return args, kwargs

    hooks.before_loader.append(remember_arguments)
    hooks.after_loader.append(remember_loader)
    hooks.around_loader_start.append(start)
    hooks.before_forward.append(take_over)


def _rates(arguments: dict[str, Any], settings: tuple[Setting, ...]) -> tuple[LoaderRate, ...]:
    return tuple(_rate(arguments, setting) for setting in settings)


def _rate(arguments: dict[str, Any], setting: Setting) -> LoaderRate:
    """Seconds per sample of one setting once the batches flow; the first batches, which the workers had time to
    prepare side by side, do not count."""
    from torch.utils.data import DataLoader

    from hotlap.levers.data.loader import edited

    try:
        loader = DataLoader(**edited(arguments, setting))
        began = time.perf_counter()
        iterator = iter(loader)
        next(iterator)
        first_batch_seconds = time.perf_counter() - began
        ahead = loader.num_workers * (loader.prefetch_factor or 0)
        drained = _drain(loader, iterator, skip=ahead)
    except _OF_A_LOADER as error:
        return LoaderRate(setting=setting, seconds_per_sample=0.0, error=_cause(error))
    except Exception as error:  # raised again unless a worker raised it, of which any library's kind may come
        if _OF_A_WORKER in str(error):
            return LoaderRate(setting=setting, seconds_per_sample=0.0, error=_cause(error))
        raise
    return LoaderRate(
        setting=setting,
        seconds_per_sample=drained.wall_seconds / max(drained.samples, 1),
        own_cpu_seconds_per_sample=drained.cpu_seconds / max(drained.samples, 1),
        first_batch_seconds=first_batch_seconds,
        batches=drained.batches,
    )


def _cause(error: Exception) -> str:
    """Of what was raised in a worker, the last line of the traceback that torch puts into its message."""
    said = str(error).strip().rpartition("\n")[2]
    name = type(error).__name__
    return (said if said.startswith(name) else f"{name}: {said}")[:LONGEST_ERROR]


class _Drained(NamedTuple):
    """What was counted; ``cpu_seconds`` are this thread's own."""

    wall_seconds: float
    cpu_seconds: float
    samples: int
    batches: int


def _drain(loader: Any, iterator: Any, skip: int) -> _Drained:
    """Batches over as many epochs as it takes."""
    samples = batches = 0
    counter = BatchCounter(loader)
    began, own_began = time.perf_counter(), time.thread_time()
    limit = began + 4 * SECONDS_PER_SETTING
    for _ in range(MAXIMUM_BATCHES):
        try:
            batch = next(iterator)
        except StopIteration:
            iterator = iter(loader)
            batch = next(iterator)
        now = time.perf_counter()
        if skip > 0 and now < limit:
            skip -= 1
            began, own_began = now, time.thread_time()
            continue
        samples += counter.samples(batch)
        batches += 1
        if now - began >= SECONDS_PER_SETTING and (batches >= MINIMUM_BATCHES or now > limit):
            break
    return _Drained(time.perf_counter() - began, time.thread_time() - own_began, samples, batches)
