"""The data set uses the accelerator, one sample at a time.

## What it is
`__getitem__`, or what it calls, moves tensors to the accelerator or computes there.

## Why it is slow
Every sample pays for kernel launches and copies that a whole batch would pay once, in the middle of the training's own
work on the device. It also rules out workers: a forked process cannot use CUDA, and each spawned one needs device
memory.

## How to see it
Calls to the accelerator while samples were created, or samples with tensors there, together with a material data wait.
The wait is an upper bound of the cost.

## What to do
Return tensors on the CPU and move whole batches in the training loop, with `pin_memory=True` and `non_blocking=True`.
Work that belongs on the device, such as augmentation, can run there on a batch, after the copy.

## When it is fine
A small data set that is stored entirely on the device and indexed there: it causes no wait, and this rule is silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.data_wait import distinct_datasets, waiting
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import at_most, is_material
from hotlap.diagnose.wording import count, levers_for, name, percent, place, time_in
from hotlap.evidence import DatasetProfile, RunEvidence
from hotlap.records import CallSite, Finding, PhaseAccount, ScriptFacts

title = "The data set uses the accelerator"
group: Group = "data"

_NAME = "accelerator-in-dataset"
_SHOWN = 3


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding per data set that uses the accelerator while training waits for it."""
    wait = waiting(profile)
    if not is_material(wait):
        return
    for dataset in distinct_datasets(profile):
        devices = [it for it in dataset.sample_devices if not it.startswith("cpu")]
        if dataset.accelerator_calls or devices:
            yield Finding(
                rule=_NAME,
                share=at_most(wait.value),
                title=f"{name(dataset.dataset)} creates its samples on the accelerator, and the step waits "
                f"{percent(wait.value)} of its time for them.",
                evidence=tuple(_evidence(profile, dataset, devices)),
                remedy="Return tensors on the CPU from the data set, and move whole batches in the training loop.",
                site=next(iter(dataset.accelerator_calls), dataset.site),
                levers=levers_for(_NAME),
            )


def _evidence(profile: Profile, dataset: DatasetProfile, devices: list[str]) -> Iterator[str]:
    yield time_in(profile.account, "data_wait")
    if devices:
        yield f"the tensors of {count(dataset.samples, 'sample')} were on {', '.join(map(name, devices[:_SHOWN]))}"
    for call in dataset.accelerator_calls[:_SHOWN]:
        yield f"{name(call.what or 'a call')} at {place(call)}"


def _profile(dataset: DatasetProfile, *, data_wait: float = 0.03) -> Profile:
    return Profile(
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("data_wait", data_wait),
                ("forward", 0.1 - data_wait),
            ),
        ),
        facts=ScriptFacts(device="cuda"),
        evidence=RunEvidence(datasets=(dataset,)),
    )


_MOVED = DatasetProfile(
    dataset="Images",
    samples=16,
    seconds=0.1,
    accelerator_calls=(CallSite(role="copy", file="/home/ada/data.py", line=21, what="Tensor.cuda"),),
)
_THERE = DatasetProfile(dataset="Images", samples=16, seconds=0.1, sample_devices=("cuda:0",))

fires = {
    "a call to the accelerator": _profile(_MOVED),
    "samples that lie there": _profile(_THERE),
}
silent = {
    "nothing measured": Profile(),
    "a data set that lies on the device and is indexed": _profile(_THERE, data_wait=0.001),
    "samples on the CPU": _profile(DatasetProfile(dataset="Images", samples=16, seconds=0.1, sample_devices=("cpu",))),
}
