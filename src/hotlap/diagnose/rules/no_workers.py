"""The training process prepares its batches itself.

## What it is
The `DataLoader` has `num_workers=0`, which is its default: the training process reads, decodes and collates each batch
before the step that uses it.

## Why it is slow
Preparing a batch and training on the previous one take turns, although they could run in parallel. A step then takes as
long as both together; with workers, as long as the slower of the two.

## How to see it
`num_workers=0` together with a material data wait. If the loader alone was timed with several numbers of workers, the
cost is the saving of the best of them: `1 - max(loader, computation) / step`. On a CPU this is an upper bound, since
workers and training share the cores: the training thread needs time to receive each batch, which was measured too, and
an operator whose threads share a core with a worker waits for it. This is the cause of the wait that `loader-bound`
measures, and both are merged into one finding.

## What to do
Set `num_workers`: `hotlap tune` times the loader alone with several numbers and tries the fewest that suffice. On a CPU
leave a core for each worker by giving torch fewer threads. Add `persistent_workers=True`, so that workers start only
once.

## When it is fine
If data is in memory and only indexed: a worker would have to send each batch to the training process, which takes
longer than creating it. Then the wait is short, and this rule is silent. It is also silent if there is only one core,
or if the data set uses the accelerator, which a forked worker cannot.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.data_wait import (
    best_rate,
    choosing,
    computing_seconds_per_sample,
    step_seconds_per_sample,
    training_loaders,
    waiting,
    workers_of,
    working_rates,
)
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import MATERIAL, at_most, between, is_material, phase_share, without
from hotlap.diagnose.wording import count, levers_for, per_second, percent, time_in
from hotlap.levers.support.situations import cores_per_process
from hotlap.records import (
    Estimate,
    Finding,
    LoaderFacts,
    LoaderRate,
    Machine,
    PhaseAccount,
    ScriptFacts,
    Setting,
)

title = "The training process prepares its batches"
group: Group = "data"
rests_on = ("account", "loader-alone")
explains = ("loader-bound",)

_NAME = "no-workers"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if no training loader has workers, the wait is material, and a core is free."""
    loaders = training_loaders(profile)
    cores = cores_per_process(profile.situation)
    wait = waiting(profile)
    if not loaders or any(loader.workers for loader in loaders) or cores < 2 or not is_material(wait):
        return
    share = _saved_by_workers(profile, wait)
    if share.value < MATERIAL or _uses_accelerator(profile):
        return
    loader = loaders[0]
    cost = percent(share.value) if share.low > 0 else f"at most {percent(share.value)}"
    yield Finding(
        rule=_NAME,
        share=share,
        title=f"The training process prepares its batches itself (num_workers=0), which costs {cost} of the step.",
        evidence=(
            time_in(profile.account, "data_wait"),
            f"num_workers=0, and {count(cores, 'core')} for this process",
            *_rates(profile),
        ),
        remedy=_remedy(profile, loader, cores),
        site=loader.site,
        levers=() if loader.iterable else levers_for(_NAME),
    )


def _saved_by_workers(profile: Profile, whole_wait: Estimate) -> Estimate:
    """Return the wait that workers can remove.

    It excludes the sampler's time, which workers do not take over, and the wait that remains if even the best setting
    of the loader is slower than the model.
    """
    wait = without(whole_wait, choosing(profile).value)
    best = _fastest(profile, has_workers=True)
    if best is None:
        return at_most(wait.value)
    saved = 1 - _loading_share(profile, best.seconds_per_sample)
    if not profile.on_accelerator:
        return at_most(max(0.0, min(wait.value, saved, _saved_on_shared_cores(profile))))
    return between(min(wait.value, saved), min(wait.low, saved), min(wait.high, saved))


def _saved_on_shared_cores(profile: Profile) -> float:
    """Return the largest share of a step that the best number of workers saves on shared cores.

    It is 1 if not measured. The training thread still receives the batches. The part of the workers' time for which no
    core is free delays training, since an operator ends when the last of its threads does.
    """
    alone, best = _fastest(profile, has_workers=False), _fastest(profile, has_workers=True)
    if not alone or not best or alone.own_cpu_seconds_per_sample is None or best.own_cpu_seconds_per_sample is None:
        return 1.0
    cores, workers = cores_per_process(profile.situation), workers_of(best)
    without_core = min(max(workers + profile.facts.threads - cores, 0), workers) / workers
    delay = without_core * alone.own_cpu_seconds_per_sample / min(workers, cores)
    computing = computing_seconds_per_sample(profile)
    return 1 - (computing + best.own_cpu_seconds_per_sample + delay) / step_seconds_per_sample(profile)


def _fastest(profile: Profile, *, has_workers: bool) -> LoaderRate | None:
    """Return the fastest timed setting of the loader alone, with or without workers."""
    timed = (it for it in working_rates(profile) if (workers_of(it) > 0) is has_workers)
    return min(timed, key=lambda it: it.seconds_per_sample, default=None)


def _loading_share(profile: Profile, best: float) -> float:
    """Return the time of loading at the best rate within the step.

    If the loader was also timed without workers, the rates of that single run are compared, and the wait is the time of
    loading within the step: other processes may have used the machine more in one run than in the other.
    """
    alone = _fastest(profile, has_workers=False)
    if alone is None or not profile.was_disturbed(("account", "loader-alone")):
        return best / step_seconds_per_sample(profile)
    return best / alone.seconds_per_sample * phase_share(profile, "data_wait").value


def _rates(profile: Profile) -> Iterator[str]:
    alone, best = _fastest(profile, has_workers=False), _fastest(profile, has_workers=True)
    if alone and best:
        yield (
            f"the loader alone: {per_second(alone.seconds_per_sample)} samples per second without workers, "
            f"{per_second(best.seconds_per_sample)} with {workers_of(best)}"
        )


def _uses_accelerator(profile: Profile) -> bool:
    return any(
        it.accelerator_calls or any(not device.startswith("cpu") for device in it.sample_devices)
        for it in profile.evidence.datasets
    )


def _remedy(profile: Profile, loader: LoaderFacts, cores: int) -> str:
    """Word the remedy with the best number of workers for the loader alone, if several were timed."""
    if loader.iterable:
        return (
            "Set num_workers, and make the data set return different samples in each worker (get_worker_info): "
            "an iterable one otherwise repeats every sample."
        )
    on_accelerator = profile.on_accelerator
    best = best_rate(it for it in working_rates(profile) if workers_of(it) > 0)
    workers = workers_of(best) if best else min(4, cores if on_accelerator else cores - 1)
    measured = "which was measured best for the loader alone" if best else "and measure"
    threads = "" if on_accelerator else " On a CPU, leave each worker a core: torch.set_num_threads."
    redraws = " Random numbers are then drawn in the workers, from streams of their own." if loader.draws_random else ""
    return f"Pass num_workers={workers} and persistent_workers=True to this DataLoader, {measured}.{threads}{redraws}"


def _rate(workers: int, seconds_per_sample: float, own_cpu_seconds_per_sample: float | None = None) -> LoaderRate:
    return LoaderRate(
        setting=Setting(lever="loader", values=(("num_workers", workers),)),
        seconds_per_sample=seconds_per_sample,
        own_cpu_seconds_per_sample=own_cpu_seconds_per_sample,
    )


def _on_two_cores(threads: int, *rates: LoaderRate) -> Profile:
    """A step of 100 ms, of which 40 ms are waited for ten samples."""
    facts = ScriptFacts(threads=threads, loaders=(LoaderFacts(dataset="Texts", batch_size=10),))
    return Profile(account=_ACCOUNT, facts=facts, machine=Machine(cores=2), loader_rates=rates)


_ACCOUNT = PhaseAccount(
    wall=0.1,
    phases=(
        ("data_wait", 0.04),
        ("forward", 0.06),
    ),
    samples_per_step=10,
)
_FACTS = ScriptFacts(device="cuda", loaders=(LoaderFacts(dataset="Images", batch_size=10),))
_MACHINE = Machine(cores=8)
_WAITING = Profile(account=_ACCOUNT, facts=_FACTS, machine=_MACHINE)

fires = {
    "others were busier while the loader was timed alone": Profile(
        account=_ACCOUNT,
        facts=_FACTS,
        machine=_MACHINE,
        loader_rates=(_rate(0, 0.0099), _rate(4, 0.0099)),
        disturbed=("loader-alone",),
    ),
    "four tenths of the step, on a device": _WAITING,
    "four workers halve the time of a sample": Profile(
        account=_ACCOUNT, facts=_FACTS, machine=_MACHINE, loader_rates=(_rate(0, 0.004), _rate(4, 0.002))
    ),
    "a CPU with a core to spare": _on_two_cores(1, _rate(0, 0.004, 0.004), _rate(1, 0.0042, 0.0002)),
    "two workers, although all cores compute": _on_two_cores(2, _rate(0, 0.004, 0.004), _rate(2, 0.0022, 0.0002)),
    "on a CPU, of which a bound is known": Profile(
        account=_ACCOUNT,
        facts=ScriptFacts(loaders=(LoaderFacts(dataset="Texts", draws_random=True),)),
        machine=Machine(cores=2),
    ),
}
silent = {
    "nothing measured": Profile(),
    "data in memory: a wait of 1 %": Profile(
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("data_wait", 0.001),
                ("forward", 0.099),
            ),
        ),
        facts=_FACTS,
        machine=_MACHINE,
    ),
    "workers are no faster than the step": Profile(
        account=_ACCOUNT, facts=_FACTS, machine=_MACHINE, loader_rates=(_rate(0, 0.004), _rate(4, 0.0099))
    ),
    "receiving takes as long as making": _on_two_cores(1, _rate(0, 0.004, 0.004), _rate(1, 0.004, 0.0039)),
    "a worker's core is one that computes": _on_two_cores(2, _rate(0, 0.004, 0.004), _rate(1, 0.0042, 0.0002)),
    "one core only": Profile(account=_ACCOUNT, facts=_FACTS, machine=Machine(cores=1)),
    "it has workers": Profile(
        account=_ACCOUNT, facts=ScriptFacts(loaders=(LoaderFacts(dataset="Images", workers=2),)), machine=_MACHINE
    ),
}
