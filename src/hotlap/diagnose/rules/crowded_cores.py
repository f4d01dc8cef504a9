"""Loader workers take cores from the training.

## What it is
The model trains on a CPU, and the workers of its `DataLoader` run on the same cores. Together with torch's own threads
there are more of them than the training process has cores.

## Why it is slow
An operator ends when the last of its threads does. If a worker decodes an image on the core of one of them, all others
wait. So the step can take several times as long although the loader delivers its batches in time, and the time account
shows it as forward and backward, where nobody looks for the loader.

## How to see it
The script is timed with its first batch replayed from memory, in turns with the unmodified script. What a step takes
without waiting for data is compared with that: `1 - data wait / step - model alone / step`. The interval is that of the
rounds of this comparison, and at least 3 % wide on each side. Nothing is reported if workers and threads together have
a core each, or if inputs change in size from batch to batch.

## What to do
Make samples cheaper: decode, resize or tokenise once, beforehand, or keep the samples that are the same in each epoch.
Leave a core to each worker, by fewer threads for torch (`torch.set_num_threads`) or fewer workers. `hotlap tune` tries
these, and measures what is best together.

## When it is fine
If each sample has to be prepared again and all cores are busy with it, the work itself takes the time. The cost that
is reported here is the gain if batches cost nothing; of that, fewer threads or workers can only give a part.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hotlap.diagnose.api import Group
from hotlap.diagnose.data_wait import ceiling, taken_from_computing, training_loaders
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import is_material, phase_share
from hotlap.diagnose.wording import count, duration, levers_for, name, percent
from hotlap.levers.support.situations import cores_per_process, workers_take_cores
from hotlap.records import Ceiling, Finding, LoaderFacts, Machine, ModelFacts, PhaseAccount, ScriptFacts

title = "Workers take cores from the training"
group: Group = "data"
rests_on = ("account", "model-alone")

_NAME = "crowded-cores"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if steps compute clearly longer beside their loader than without it."""
    known = profile.machine != Machine()
    share = taken_from_computing(profile)
    if share is None or not known or not workers_take_cores(profile.situation) or not is_material(share):
        return
    loader = max(training_loaders(profile), key=lambda it: it.workers)
    yield Finding(
        rule=_NAME,
        share=share,
        title=f"Workers take cores from the training, which costs {percent(share.value)} of the step.",
        evidence=tuple(_evidence(profile, loader)),
        remedy=_remedy(profile, loader),
        site=loader.site,
        levers=levers_for(_NAME, profile.situation),
    )


def _evidence(profile: Profile, loader: LoaderFacts) -> Iterator[str]:
    wall, alone = profile.account.wall, ceiling(profile, "model-alone")
    beside = duration(wall * (1 - phase_share(profile, "data_wait").value))
    if alone is not None and alone.bound_speedup:
        by_itself = duration(wall / alone.bound_speedup)
        yield f"a step computes for {beside} beside its loader, and for {by_itself} with a batch from memory"
    workers, threads = count(loader.workers, "worker"), count(profile.facts.threads, "thread")
    cores = count(cores_per_process(profile.situation), "core")
    yield f"DataLoader over {name(loader.dataset)}: {workers}, beside {threads} of torch on {cores}"


def _remedy(profile: Profile, loader: LoaderFacts) -> str:
    free = cores_per_process(profile.situation) - loader.workers
    cheaper = "Make samples cheaper (decode, resize or tokenise once, beforehand)"
    if free >= 1:
        return f"{cheaper}, or leave the workers their cores: torch.set_num_threads({free})."
    return f"{cheaper}, or use fewer workers, and fewer threads for torch."


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------


def _profile(
    *,
    workers: int = 1,
    threads: int = 2,
    speedup: float = 2.0,
    interval: tuple[float, float] | None = (1.9, 2.1),
    cores: int = 2,
    device: str = "cpu",
    models: tuple[ModelFacts, ...] = (),
) -> Profile:
    """A step of 200 ms that waits 20 ms for data."""
    loader = LoaderFacts(dataset="Photos", batch_size=32, workers=workers, length=400)
    return Profile(
        facts=ScriptFacts(device=device, threads=threads, loaders=(loader,), models=models),
        machine=Machine(processor="A CPU", cores=cores, physical_cores=cores),
        account=PhaseAccount(
            wall=0.2,
            phases=(
                ("data_wait", 0.02),
                ("forward", 0.06),
                ("backward", 0.12),
            ),
            samples_per_step=32,
        ),
        ceilings=(Ceiling(name="model-alone", bound_speedup=speedup, bound_interval=interval),),
    )


_SENTENCES = ModelFacts(kind="Net", parameters=1, input_shapes=tuple((32, 100 + it) for it in range(9)))

fires = {
    "one worker beside a thread for each core": _profile(),
    "more workers than cores": _profile(workers=4, threads=1),
}
silent = {
    "nothing was measured": Profile(),
    "a core for each worker and thread": _profile(threads=1),
    "the model alone saves the wait, and no more": _profile(speedup=1.11, interval=(1.1, 1.12)),
    "rounds that differ too much": _profile(speedup=1.3, interval=(1.05, 1.6)),
    "an accelerator computes": _profile(device="cuda:0"),
    "one batch of many lengths was replayed": _profile(models=(_SENTENCES,)),
    "by the time account, which cannot show it": _profile(interval=None),
    "the machine is unknown": msgspec.structs.replace(_profile(), machine=Machine()),
}
