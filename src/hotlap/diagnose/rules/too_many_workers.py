"""More workers than the loader can use.

## What it is
The `DataLoader` starts more worker processes than make it any faster.

## Why it is slow
Each worker is a process with its own Python, its own copy of the data set's objects, and its own batches in shared
memory. If fewer workers already keep the cores (or the disk) busy, more of them only take turns. They also lengthen the
start of every epoch, and on a CPU they take cores from the training.

## How to see it
The loader is timed alone with several numbers of workers. This rule reports if fewer are within 2 % of the script's
number, or, if the loader was not timed, if there are more workers than cores. Timing the loader alone does not show
whether the step gets faster, so the gain is unknown. If the step also waits for data, this is the cause, and both are
merged into one finding, `loader-bound`.

## What to do
Use the fewest that are within 2 % of the best measured number. torch's own warning gives the same limit: no more
workers than cores, unless they mostly wait for a network or a slow disk.

## When it is fine
If workers wait most of the time, for example for remote storage, more workers than cores can be useful. Then the loader
alone is faster with them, and this rule is silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.data_wait import best_rate, own_rate, training_loaders, workers_of, working_rates
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count, levers_for, name, per_second
from hotlap.levers.data.loader import CLOSE_TO_BEST
from hotlap.levers.support.situations import cores_per_process
from hotlap.records import Finding, LoaderFacts, LoaderRate, Machine, ScriptFacts, Setting

title = "The loader has more workers than it can use"
group: Group = "data"
rests_on = ("account", "loader-alone")
explains = ("loader-bound",)

_NAME = "too-many-workers"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if all training loaders have the same workers and fewer would do."""
    loaders = training_loaders(profile)
    if len({loader.workers for loader in loaders}) != 1 or loaders[0].workers < 2:
        return
    loader = loaders[0]
    if working_rates(profile):
        yield from _fewer_as_fast(profile, loader)
    elif profile.machine != Machine() and loader.workers > cores_per_process(profile.situation):
        yield _more_than_cores(profile, loader)


def _fewer_as_fast(profile: Profile, loader: LoaderFacts) -> Iterator[Finding]:
    own = own_rate(profile, loader)
    if own is None:
        return
    limit = own.seconds_per_sample * CLOSE_TO_BEST
    enough = [
        it for it in working_rates(profile) if 1 <= workers_of(it) < loader.workers and it.seconds_per_sample <= limit
    ]
    best = best_rate(enough)
    if best is None:
        return
    gain = own.seconds_per_sample / best.seconds_per_sample
    faster = f"{gain:.3g} times as fast as" if gain > CLOSE_TO_BEST else "as fast as"
    number = count(workers_of(best), "worker")
    yield _finding(
        loader,
        title=f"{number} would load {faster} the script's {loader.workers}.",
        evidence=tuple(
            f"{count(workers_of(it), 'worker')}: {per_second(it.seconds_per_sample)} samples per second, loader alone"
            for it in (best, own)
        ),
        remedy=f"Pass num_workers={workers_of(best)}, which was measured best: {_why(gain)}.",
    )


def _why(gain: float) -> str:
    fewer = "fewer processes and less memory"
    return f"{fewer}, and more samples per second" if gain > CLOSE_TO_BEST else f"{fewer} for the same speed"


def _more_than_cores(profile: Profile, loader: LoaderFacts) -> Finding:
    cores = cores_per_process(profile.situation)
    processes = count(profile.facts.processes, "training process", "training processes")
    return _finding(
        loader,
        title=f"The loader starts {loader.workers} workers for {count(cores, 'core')}.",
        evidence=(
            f"DataLoader over {name(loader.dataset)}: {loader.workers} workers",
            f"{count(profile.machine.cores, 'core')} for {processes}",
        ),
        remedy=f"Pass num_workers={cores} or fewer, unless the workers mostly wait for a network or a slow disk.",
    )


def _finding(loader: LoaderFacts, *, title: str, evidence: tuple[str, ...], remedy: str) -> Finding:
    return Finding(
        rule=_NAME,
        kind="hint",
        share=exactly(0.0),
        title=title,
        evidence=evidence,
        remedy=remedy,
        site=loader.site,
        levers=levers_for(_NAME),
    )


def _rate(workers: int, seconds_per_sample: float) -> LoaderRate:
    values = (("prefetch_factor", 2), ("num_workers", workers))
    return LoaderRate(setting=Setting(lever="loader", values=values), seconds_per_sample=seconds_per_sample)


_SIXTEEN = ScriptFacts(device="cuda", loaders=(LoaderFacts(dataset="Images", workers=16),))

fires = {
    "four are as fast as sixteen": Profile(
        facts=_SIXTEEN, machine=Machine(cores=32), loader_rates=(_rate(16, 0.001), _rate(4, 0.00101), _rate(2, 0.0019))
    ),
    "one is twenty times as fast as sixteen": Profile(
        facts=_SIXTEEN, machine=Machine(cores=2), loader_rates=(_rate(16, 0.011), _rate(2, 0.0006), _rate(1, 0.0005))
    ),
    "sixteen for eight cores, never timed alone": Profile(facts=_SIXTEEN, machine=Machine(cores=8, physical_cores=4)),
}
silent = {
    "nothing measured": Profile(),
    "eight are 5 % slower": Profile(
        facts=_SIXTEEN, machine=Machine(cores=32), loader_rates=(_rate(16, 0.001), _rate(8, 0.00105))
    ),
    "more than cores, but faster so": Profile(
        facts=_SIXTEEN, machine=Machine(cores=8), loader_rates=(_rate(16, 0.001), _rate(8, 0.0018))
    ),
    "as many as cores": Profile(facts=_SIXTEEN, machine=Machine(cores=16)),
    "the machine is unknown": Profile(facts=_SIXTEEN),
}
