"""The step waits for its data.

## What it is
Each step begins by fetching a batch from the `DataLoader`. If none is ready, training waits: the model and the device
are faster than the data pipeline.

## Why it is slow
Reading, decoding, augmenting and collating take CPU time, and without workers the training process spends it between
any two steps. With workers it waits whenever they are slower than the model: then the loader is the bottleneck, and a
faster model only makes the wait longer.

## How to see it
The time account's `data_wait`. On an accelerator it is the time that the device idled for the batch, so a wait that
overlaps with queued work does not count. Two ceilings check it: the loader alone (no model) and the model alone (one
batch, again and again, from memory). A step cannot be faster than either. A loader without any cost would therefore
save `1 - model alone / step`, and never more than the wait itself; this rule reports the smaller of the two if it is at
least 2 % and its interval is above 1 %.

## What to do
Without workers: give the loader some (`num_workers`), so that batches are prepared while the model computes. With
workers: add more as long as cores are free; make samples cheaper, by decoding, resizing or tokenising once, beforehand;
move the costliest transform to where it is cheaper. The rules `slow-transform`, `slow-sampler`, `short-queue` and
`worker-startup` report which of these applies, if that was measured; if it is the number of workers, `no-workers` and
`too-many-workers` become part of this finding, with the number that was measured best.

## When it is fine
If the data cannot be produced faster, such as samples that are simulated or fetched over a network for each step. The
wait is then unavoidable, and a larger model would cost no extra time.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.data_wait import (
    best_rate,
    ceiling,
    choosing,
    step_seconds_per_sample,
    training_loaders,
    waiting,
    workers_of,
    working_rates,
)
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import is_material, phase_share
from hotlap.diagnose.wording import count, levers_for, name, per_second, percent, share_of_step, time_in
from hotlap.records import Ceiling, Finding, LoaderFacts, PhaseAccount, ScriptFacts

title = "The step waits for its data"
group: Group = "data"
rests_on = ("account", "loader-alone", "model-alone")

_NAME = "loader-bound"
_SHOWN = 3
_MOST = 0.5


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if a loader without cost would save a material share of the step."""
    share = waiting(profile)
    if not is_material(share):
        return
    loaders = training_loaders(profile)
    yield Finding(
        rule=_NAME,
        share=share,
        title=f"The step waits {percent(share.value)} of its time for data.",
        evidence=(
            f"{time_in(profile.account, 'data_wait')}, {share_of_step(phase_share(profile, 'data_wait'))}",
            *_rates(profile),
            *list(dict.fromkeys(map(_describe, loaders)))[:_SHOWN],
        ),
        remedy=_remedy(profile, loaders),
        site=loaders[0].site if loaders else None,
        levers=levers_for(_NAME),
    )


def _rates(profile: Profile) -> Iterator[str]:
    """Return samples per second of the script, and the ceilings of loader and model alone."""
    own = step_seconds_per_sample(profile)
    rates = [f"{per_second(own)} in the script"]
    for what, text in (("loader-alone", "by its loader alone"), ("model-alone", "by its model alone")):
        measured = ceiling(profile, what)
        if measured and measured.seconds_per_sample:
            rates.append(f"{per_second(measured.seconds_per_sample)} {text}")
    if len(rates) > 1:
        yield f"samples per second: {', '.join(rates)}"


def _describe(loader: LoaderFacts) -> str:
    batch = f"batches of {loader.batch_size}" if loader.batch_size else "batches created by the data set"
    return f"DataLoader over {name(loader.dataset)}: {count(loader.workers, 'worker')}, {batch}"


def _remedy(profile: Profile, loaders: tuple[LoaderFacts, ...]) -> str:
    if choosing(profile).value >= _MOST * waiting(profile).value:
        return "Make the sampler cheaper: it runs in the training process, so more workers do not help."
    if loaders and all(loader.workers == 0 for loader in loaders):
        return "Load batches in worker processes while the model computes (num_workers), or make samples cheaper."
    best, workers = best_rate(working_rates(profile)), loaders[0].workers if loaders else 0
    if best is not None and workers_of(best) > workers:
        return (
            f"Pass num_workers={workers_of(best)}, which was measured best for the loader alone, or make samples "
            "cheaper (decode, resize or tokenise once, beforehand)."
        )
    if best is not None:
        return (
            "Make samples cheaper (decode, resize or tokenise once, beforehand): no more workers were measured to load "
            "faster."
        )
    return (
        "Make samples cheaper (decode, resize or tokenise once, beforehand), or add workers as long as cores are free "
        "and the loader alone gets faster."
    )


_ACCOUNT = PhaseAccount(
    wall=0.1,
    phases=(
        ("data_wait", 0.03),
        ("forward", 0.03),
        ("backward", 0.04),
    ),
    samples_per_step=32,
)
_FACTS = ScriptFacts(loaders=(LoaderFacts(dataset="Images", batch_size=32),))

fires = {
    "three tenths of the step are data wait": Profile(account=_ACCOUNT, facts=_FACTS),
    "the model alone is a quarter faster than the step": Profile(
        account=_ACCOUNT,
        facts=_FACTS,
        ceilings=(
            Ceiling(name="loader-alone", seconds_per_sample=0.002, bound_speedup=1.5),
            Ceiling(name="model-alone", seconds_per_sample=0.0025, bound_speedup=1.25),
        ),
    ),
}
silent = {
    "nothing measured": Profile(),
    "a wait of 1.5 %": Profile(
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("data_wait", 0.0015),
                ("forward", 0.0985),
            ),
        ),
        facts=_FACTS,
    ),
    "fed from memory, the model is no faster": Profile(
        account=_ACCOUNT, facts=_FACTS, ceilings=(Ceiling(name="model-alone", bound_speedup=1.0),)
    ),
}
