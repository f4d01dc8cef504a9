"""The queue of batches runs empty although the workers keep up on average.

## What it is
Each worker prepares `prefetch_factor` batches ahead, two by default. If batches take very unequal time, a single slow
one empties the queue before the next is ready, although the loader as a whole is fast enough.

## Why it is slow
Batches are returned in order: the step waits for the slow one, and the other workers stop once their few batches are
ready, instead of working ahead.

## How to see it
All of these: the step waits for a material time; the loader alone delivers faster than the model computes, so the
workers are not simply too slow (that is `loader-bound`); the queue was empty at some fetches, but not at nearly all of
them; and a tenth of the fetches cause at least half of the wait. The saving of a longer queue depends on the
distribution of slow batches, so the wait outside of the starts of epochs is given as an upper bound.

## What to do
Raise `prefetch_factor` to 4 or more; each ready batch takes its size in shared memory, for every worker. Make batches
more equal: sort by length, truncate the longest, store large files in pieces.

## When it is fine
If there is no memory for more batches. If the queue is always empty, use faster workers, not a longer queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.data_wait import computing_seconds_per_sample, own_rate, waiting
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import MATERIAL, at_most, is_material
from hotlap.diagnose.wording import levers_for, name, percent
from hotlap.evidence import LoaderUse, RunEvidence
from hotlap.levers.data.loader import USUAL_PREFETCH
from hotlap.records import Finding, LoaderFacts, LoaderRate, PhaseAccount, ScriptFacts, Setting

title = "The queue of batches runs empty although the workers keep up"
group: Group = "data"
rests_on = ("account", "loader-alone")

_NAME = "short-queue"
_FEWEST_FETCHES = 20
_OFTEN_ENOUGH, _NEARLY_ALWAYS = 0.05, 0.9
_SLOWEST, _THEIR_PART = 0.1, 0.5


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding per training loader whose queue is too short for its unequal batches."""
    wait = waiting(profile)
    if not is_material(wait):
        return
    for use in profile.evidence.loaders:
        loaders = [it for it in profile.facts.loaders if it.dataset == use.dataset]
        if loaders and all(_keeps_up_with_a_short_queue(profile, it) for it in loaders):
            yield from _uneven(use, loaders[0], wait.value)


def _keeps_up_with_a_short_queue(profile: Profile, loader: LoaderFacts) -> bool:
    rate = own_rate(profile, loader)
    short = loader.workers > 0 and (loader.prefetch_factor or USUAL_PREFETCH) <= USUAL_PREFETCH
    return short and rate is not None and rate.seconds_per_sample < computing_seconds_per_sample(profile)


def _uneven(use: LoaderUse, loader: LoaderFacts, wait: float) -> Iterator[Finding]:
    fetches, queue = use.fetch_seconds, use.queue_lengths
    if len(fetches) < _FEWEST_FETCHES or len(queue) < _FEWEST_FETCHES or sum(fetches) <= 0:
        return
    empty = sum(length == 0 for length in queue) / len(queue)
    slowest = sorted(fetches)[-max(1, int(len(fetches) * _SLOWEST)) :]
    part = sum(slowest) / sum(fetches)
    within_epochs = sum(fetches) / (sum(fetches) + sum(use.start_seconds) + sum(use.first_fetch_seconds))
    bound = wait * within_epochs
    if not _OFTEN_ENOUGH <= empty <= _NEARLY_ALWAYS or part < _THEIR_PART or bound < MATERIAL:
        return
    prefetch = loader.prefetch_factor or USUAL_PREFETCH
    yield Finding(
        rule=_NAME,
        share=at_most(bound),
        title=f"The queue of batches was empty at {percent(empty)} of the fetches, although the workers keep up on "
        "average.",
        evidence=(
            f"the slowest {len(slowest)} of {len(fetches)} fetches take {percent(part)} of the time spent fetching",
            f"DataLoader over {name(loader.dataset)}: {loader.workers} workers, prefetch_factor {prefetch}",
            f"waiting within epochs: at most {percent(bound)} of the step",
        ),
        remedy=f"Pass prefetch_factor={2 * USUAL_PREFETCH} or more (shared memory must hold that many batches for each "
        "worker), or make batches more alike in size.",
        site=loader.site,
        levers=levers_for(_NAME),
    )


_ACCOUNT = PhaseAccount(
    wall=0.1,
    phases=(
        ("data_wait", 0.02),
        ("forward", 0.08),
    ),
    samples_per_step=10,
)
_BURSTS = LoaderUse(dataset="Texts", fetch_seconds=(*((0.001,) * 36), *((0.2,) * 4)), queue_lengths=(3, 3, 2, 0) * 10)
_EVEN = LoaderUse(dataset="Texts", fetch_seconds=(0.02,) * 40, queue_lengths=(3, 3, 2, 0) * 10)
_NEVER = LoaderUse(dataset="Texts", fetch_seconds=_BURSTS.fetch_seconds, queue_lengths=(0,) * 40)


def _profile(use: LoaderUse, *, prefetch: int | None = 2, rate: float = 0.004) -> Profile:
    loader = LoaderFacts(dataset="Texts", workers=4, prefetch_factor=prefetch)
    setting = Setting(lever="loader", values=(("prefetch_factor", prefetch or 2), ("num_workers", 4)))
    return Profile(
        account=_ACCOUNT,
        facts=ScriptFacts(device="cuda", loaders=(loader,)),
        loader_rates=(LoaderRate(setting=setting, seconds_per_sample=rate),),
        evidence=RunEvidence(loaders=(use,)),
    )


fires = {
    "a tenth of the fetches holds nearly all the waiting": _profile(_BURSTS),
    "one batch ahead": _profile(_BURSTS, prefetch=1),
}
silent = {
    "nothing measured": Profile(),
    "every fetch takes the same": _profile(_EVEN),
    "the queue is always empty": _profile(_NEVER),
    "the workers are too slow on average": _profile(_BURSTS, rate=0.009),
    "a long queue": _profile(_BURSTS, prefetch=8),
}
