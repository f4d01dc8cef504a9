"""Each thread that computes stays on a core of its own.

## What it does
Before the first training step it lets torch compute for some milliseconds, sees which threads of the process did so,
and binds each to one core (`os.sched_setaffinity`), on different physical cores as far as there are enough. With
`workers="apart"`, workers of a `DataLoader` are bound to the cores that are left.

The thread that runs the script is not bound: threads and processes that it starts would inherit its only core.

## When it helps
If the system moves threads between cores, which costs them their caches, or runs two of them on one physical core: on
machines with many cores or several sockets, and where workers of a loader compete with torch for the same cores.

## What it costs
A bound thread cannot evade another program that uses its core: on a shared machine training may become slower.

## Before
    python train.py

## After
    OMP_PROC_BIND=close OMP_PLACES=cores python train.py

## What is proved
`exact`: the same threads compute the same numbers.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter
from hotlap.levers.support.situations import bound_of_computing, cores_per_process, device_kind, make_setting
from hotlap.levers.support.switching import Switch
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Fetch, Hooks

title = "Each compute thread on a core of its own"
proof: Proof = "exact"
addresses = ("oversubscribed",)
parameters = {"workers": Parameter(str, choices=("anywhere", "apart"))}

_ELEMENTS_OF_A_THREAD = 1 << 17
"""More than what torch gives a thread at least (32768), and little memory."""

_COMPUTING_SECONDS, _FEWEST_RUNS = 0.02, 8
_LEAST_SHARE = 0.1
"""A thread that computed has run for at least this share of the calling thread's time."""

_TASKS = Path("/proc/self/task")
_CORES = Path("/sys/devices/system/cpu")


def obstacle(situation: Situation) -> Skipped | None:
    """Require CPU training by one process with several threads, each of which can have a core."""
    facts, cores = situation.facts, cores_per_process(situation)
    if device_kind(situation) != "cpu":
        return Skipped(reason="The model computes on an accelerator, so the CPU's threads matter little.")
    if facts.processes > 1:
        return Skipped(reason="Several processes share this machine's cores, and each would use the same ones.")
    if facts.threads < 2 or cores < 2:
        return Skipped(reason="A single thread computes, which is seldom moved.")
    if facts.threads > cores:
        return Skipped(reason=f"There are only {cores} cores for torch's {facts.threads} threads.")
    return None


def bound(situation: Situation) -> float | None:
    """All computation of torch may get faster, but not waiting for workers."""
    return bound_of_computing(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Workers apart as well, if there are workers, and cores left for them."""
    if obstacle(situation) is not None:
        return ()
    facts = situation.facts
    has_workers = any(it.workers for it in facts.training_loaders)
    apart = has_workers and cores_per_process(situation) > facts.threads
    return tuple(make_setting("pinned-threads", workers=it) for it in (["apart"] if apart else []) + ["anywhere"])


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: the variables must be set before the process starts."""
    return (
        NoSourceForm(
            reason="Start the script with OMP_PROC_BIND=close and OMP_PLACES=cores. They also bind the main thread, "
            "whose core workers of a DataLoader inherit: let its worker_init_fn call os.sched_setaffinity(0, cores)."
        ),
    )


def install(hooks: Hooks, setting: Setting) -> None:
    """Bind the threads when the first model is about to train: the script may set their number before."""
    placement = _Placement(hooks, setting)
    hooks.model_found.append(lambda root: placement.put_on())


def switch(hooks: Hooks, setting: Setting) -> Switch:
    """Bind them, and free them again."""
    placement = _Placement(hooks, setting)
    return Switch(on=placement.put_on, off=placement.take_off)


class _Placement:
    """Which threads and workers are bound, and what to."""

    def __init__(self, hooks: Hooks, setting: Setting) -> None:
        self._hooks = hooks
        self._cores = cores_in_order(os.sched_getaffinity(0))
        self._bound: list[int] = []
        self._workers: set[int] = set()
        self._is_on = False
        if dict(setting.values)["workers"] == "apart":
            hooks.around_loader_start.append(self._started)

    def put_on(self) -> None:
        if self._is_on:
            return
        self._is_on = True
        threads = computing_threads(self._hooks.torch)
        if not threads:
            self._hooks.note(
                "No thread that computes for torch could be told from others, so none was bound to a core."
            )
        for thread, core in zip(threads, self._cores[1:], strict=False):
            _bind(thread, {core})
        self._bound = threads
        self._bind_workers()

    def take_off(self) -> None:
        self._is_on = False
        for task in (*self._bound, *self._workers):
            _bind(task, self._cores)
        self._bound = []

    def _started(self, loader: Any, begin: Fetch) -> Any:
        before = {it.pid for it in multiprocessing.active_children()}
        iterator = begin()
        running = {it.pid for it in multiprocessing.active_children() if it.pid is not None}
        self._workers = (self._workers & running) | (running - before)
        if self._is_on:
            self._bind_workers()
        return iterator

    def _bind_workers(self) -> None:
        left = self._cores[self._hooks.torch.get_num_threads() :]
        for worker in self._workers if left else ():
            _bind(worker, left)


def computing_threads(torch: Any) -> list[int]:
    """The native identifiers of the threads that compute for torch, without the calling one, busiest first."""
    wanted = torch.get_num_threads() - 1
    if wanted < 1:
        return []
    before = _run_nanoseconds()
    began, runs = time.perf_counter(), 0
    with torch.no_grad():
        numbers = torch.zeros(_ELEMENTS_OF_A_THREAD * (wanted + 1), device="cpu")
        while runs < _FEWEST_RUNS or time.perf_counter() < began + _COMPUTING_SECONDS:
            numbers.add_(1)
            runs += 1
    grown = {task: spent - before.get(task, 0) for task, spent in _run_nanoseconds().items()}
    least = _LEAST_SHARE * grown.get(threading.get_native_id(), 0)
    of_python = {it.native_id for it in threading.enumerate()}
    busy = [it for it, nanoseconds in grown.items() if it not in of_python and nanoseconds >= max(1.0, least)]
    return sorted(busy, key=lambda it: -grown[it])[:wanted]


def _run_nanoseconds() -> dict[int, int]:
    """How long each thread of this process ran so far."""
    found: dict[int, int] = {}
    for task in _TASKS.iterdir():
        with suppress(OSError, ValueError, IndexError):  # a thread may end meanwhile
            found[int(task.name)] = int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return found


def cores_in_order(cores: Iterable[int], folder: Path = _CORES) -> list[int]:
    """These cores, one of each physical core first."""
    usable = sorted(cores)
    firsts: list[int] = []
    seconds: list[int] = []
    seen: set[str] = set()
    for core in usable:
        siblings = _siblings(folder, core)
        (seconds if siblings in seen else firsts).append(core)
        seen.add(siblings)
    return [*firsts, *seconds]


def _siblings(folder: Path, core: int) -> str:
    """The cores that are the same physical one, as the system writes them; the core itself where that is unknown."""
    try:
        return (folder / f"cpu{core}" / "topology" / "thread_siblings_list").read_text(encoding="ascii").strip()
    except OSError:
        return str(core)


def _bind(task: int, cores: Sequence[int] | set[int]) -> None:
    with suppress(OSError):  # it has ended, or the system forbids it
        os.sched_setaffinity(task, cores)
