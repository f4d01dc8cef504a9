"""Shared memory is too small for the prefetched batches.

## What it is
Workers pass their batches through shared memory (`/dev/shm`). Each of them may have `prefetch_factor` batches there at
a time, and the training process holds one more.

## Why it is slow
It is not slow, but ends the run. A worker that finds shared memory full is killed by a bus error, and training stops
with "DataLoader worker is killed by signal: Bus error". Containers often give only 64 MiB.

## How to see it
`(workers * prefetch_factor + 1) * bytes of a batch`, for every training process, compared with the size of shared
memory. This rule reports half of it or more: batches may be larger than the measured one, and other processes use
shared memory too.

## What to do
Start the container with `--shm-size=8g` or `--ipc=host` (Kubernetes: mount an `emptyDir` of medium `Memory` at
`/dev/shm`). Otherwise use fewer workers or a smaller `prefetch_factor`.

## When it is fine
If the queue never fills up: workers that are slower than the model seldom have a batch ready.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.data_wait import distinct_loaders
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count, name, size
from hotlap.levers.data.loader import SHARED_MEMORY_SHARE, USUAL_PREFETCH
from hotlap.records import Finding, LoaderFacts, Machine, ScriptFacts

title = "Shared memory is too small for the prefetched batches"
group: Group = "data"

_NAME = "small-shared-memory"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if all loaders together may fill half of shared memory."""
    available = profile.machine.shared_memory_bytes
    processes = max(1, profile.facts.processes)
    needs = [(it, _bytes_waiting(it) * processes) for it in distinct_loaders(profile) if it.workers]
    needed = sum(needed for _, needed in needs)
    if available <= 0 or needed <= available * SHARED_MEMORY_SHARE:
        return
    yield Finding(
        rule=_NAME,
        kind="risk",
        share=exactly(0.0),
        title=f"Prefetched batches may take {size(needed)} of shared memory, which has {size(available)}.",
        evidence=tuple(_describe(loader, needed, processes) for loader, needed in needs),
        remedy="Give the container more (--shm-size=8g, or --ipc=host), or use fewer workers or a smaller "
        "prefetch_factor.",
        site=max(needs, key=lambda it: it[1])[0].site,
    )


def _bytes_waiting(loader: LoaderFacts) -> int:
    return (loader.workers * (loader.prefetch_factor or USUAL_PREFETCH) + 1) * loader.batch_bytes


def _describe(loader: LoaderFacts, needed: int, processes: int) -> str:
    in_each = f" in each of {processes} processes" if processes > 1 else ""
    return (
        f"DataLoader over {name(loader.dataset)}: {count(loader.workers, 'worker')}{in_each} with "
        f"{loader.prefetch_factor or USUAL_PREFETCH} batches of {size(loader.batch_bytes)} each, {size(needed)} in all"
    )


_LOADER = LoaderFacts(dataset="Images", workers=4, prefetch_factor=2, batch_bytes=10 << 20)

fires = {
    "90 MiB in a container's 64 MiB": Profile(
        facts=ScriptFacts(loaders=(_LOADER,)), machine=Machine(shared_memory_bytes=64 << 20)
    ),
    "two processes share what would do for one": Profile(
        facts=ScriptFacts(loaders=(_LOADER,), processes=2), machine=Machine(shared_memory_bytes=300 << 20)
    ),
}
silent = {
    "nothing measured": Profile(),
    "90 MiB of 200 MiB": Profile(facts=ScriptFacts(loaders=(_LOADER,)), machine=Machine(shared_memory_bytes=200 << 20)),
    "one loader, created again in every epoch": Profile(
        facts=ScriptFacts(loaders=(_LOADER,) * 12), machine=Machine(shared_memory_bytes=200 << 20)
    ),
    "no workers": Profile(
        facts=ScriptFacts(loaders=(LoaderFacts(dataset="Images", batch_bytes=1 << 30),)),
        machine=Machine(shared_memory_bytes=64 << 20),
    ),
    "the size of a batch is not known": Profile(
        facts=ScriptFacts(loaders=(LoaderFacts(dataset="Images", workers=4),)),
        machine=Machine(shared_memory_bytes=64 << 20),
    ),
}
