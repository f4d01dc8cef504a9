"""Workers start again with every epoch.

## What it is
Without `persistent_workers=True` the `DataLoader` ends its workers after each epoch and starts new ones for the next,
which import modules, copy the data set and fill the queue before the first batch is ready. A script that creates a new
`DataLoader` in every epoch also starts new workers, with any arguments.

## Why it is slow
Training stops meanwhile. Starting takes from tens of milliseconds (forked) to several seconds (spawned, with large
imports) per epoch: negligible if an epoch takes an hour, most of the time if it takes a second.

## How to see it
The time of `iter(loader)` and the first fetch after it, from the second epoch of the profiled run on, minus a usual
fetch. That time per step of the run, relative to the unmodified script's step, is the cost; it is at most the data
wait.

## What to do
Create the `DataLoader` once, and pass `persistent_workers=True`. If epochs are very short, let one epoch iterate over
the data several times.

## When it is fine
If epochs are long. A data set with a `set_epoch` method needs new workers, since persistent ones do not see that call;
and persistent workers keep their memory, which a second loader (for evaluation) may need.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly, is_material, phase_share
from hotlap.diagnose.wording import count, duration, levers_for, name, percent
from hotlap.evidence import LoaderUse, RunEvidence
from hotlap.records import Finding, LoaderFacts, PhaseAccount, ScriptFacts

title = "Workers start again with every epoch"
group: Group = "data"

_NAME = "worker-startup"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding per training loader whose restarts take a material time."""
    for use in profile.evidence.loaders:
        loaders = [it for it in profile.facts.loaders if it.dataset == use.dataset]
        if not loaders or any(it.workers == 0 for it in loaders):
            continue
        if any(it.persistent_workers for it in loaders) and not _is_made_again(profile, loaders[0]):
            continue
        lost = _lost_again(use)
        if lost and profile.evidence.observed_steps and profile.account.wall > 0:
            yield from _finding(profile, use, loaders[0], lost)


def _is_made_again(profile: Profile, loader: LoaderFacts) -> bool:
    """Whether the line that creates the loader created several alike."""
    return sum(it == loader for it in profile.facts.loaders) > 1


def _steps_of_the_run(profile: Profile) -> int:
    """Starts are also timed under the profiler, where calls are not counted."""
    window = profile.evidence.window
    return profile.evidence.observed_steps + (window.steps if window else 0)


def _lost_again(use: LoaderUse) -> tuple[float, ...]:
    """Return the seconds to the first batch of each epoch but the first, minus a usual fetch.

    The very first start is always needed.
    """
    usual = median(use.fetch_seconds) if use.fetch_seconds else 0.0
    starts = zip(use.start_seconds[1:], use.first_fetch_seconds[1:], strict=False)
    return tuple(max(0.0, start + first - usual) for start, first in starts)


def _finding(profile: Profile, use: LoaderUse, loader: LoaderFacts, lost: tuple[float, ...]) -> Iterator[Finding]:
    steps = _steps_of_the_run(profile)
    per_step = sum(lost) / steps
    share = exactly(min(per_step / profile.account.wall, phase_share(profile, "data_wait").value))
    if not is_material(share):
        return
    made_again = _is_made_again(profile, loader)
    persistence = "created again in every epoch" if made_again else "not persistent"
    yield Finding(
        rule=_NAME,
        share=share,
        title=f"Starting the workers again takes {duration(fmean(lost))} per epoch, {percent(share.value)} of "
        "the step.",
        evidence=(
            f"{count(len(lost), 'restart')} in {count(steps, 'step')}, {duration(sum(lost))} in all",
            f"DataLoader over {name(use.dataset)}: {count(loader.workers, 'worker')}, {persistence}",
        ),
        remedy="Create this DataLoader once, before the loop over epochs, and pass persistent_workers=True."
        if made_again
        else "Pass persistent_workers=True to this DataLoader, unless its data set relies on set_epoch.",
        site=loader.site,
        levers=() if made_again else levers_for(_NAME),
    )


def _profile(
    use: LoaderUse, *, workers: int = 4, persistent: bool = False, steps: int = 60, loaders: int = 1
) -> Profile:
    loader = LoaderFacts(dataset="Images", workers=workers, persistent_workers=persistent)
    return Profile(
        account=PhaseAccount(
            wall=0.02,
            phases=(
                ("data_wait", 0.01),
                ("forward", 0.01),
            ),
        ),
        facts=ScriptFacts(device="cuda", loaders=(loader,) * loaders),
        evidence=RunEvidence(observed_steps=steps, observed_seconds=1.2, loaders=(use,)),
    )


_THREE_EPOCHS = LoaderUse(
    dataset="Images", start_seconds=(0.05, 0.05, 0.05), first_fetch_seconds=(0.4, 0.1, 0.1), fetch_seconds=(0.002,) * 57
)
_ONE_EPOCH = LoaderUse(dataset="Images", start_seconds=(0.05,), first_fetch_seconds=(0.4,), fetch_seconds=(0.002,) * 59)

fires = {
    "epochs of twenty steps": _profile(_THREE_EPOCHS),
    "one worker, epochs of a hundred steps": _profile(_THREE_EPOCHS, workers=1, steps=300),
    "workers that would persist, in a loader that does not": _profile(_THREE_EPOCHS, persistent=True, loaders=3),
}
silent = {
    "nothing measured": Profile(),
    "the workers persist": _profile(_THREE_EPOCHS, persistent=True),
    "only the first start was seen": _profile(_ONE_EPOCH),
    "epochs of a thousand steps": _profile(_THREE_EPOCHS, steps=3000),
    "no workers": _profile(_THREE_EPOCHS, workers=0),
}
