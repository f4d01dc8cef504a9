"""Other processes compute on the same device.

## What it is
Other processes had a compute context on the training device when it was checked, before training began.

## Why it is slow
Kernels of different processes take turns on a device, and each switch takes time. Less memory is available.
Measurements are not repeatable, since the load of the other processes changes.

## How to see it
The driver's list of processes that compute on the device, without hotlap's own.

## What to do
Identify them with `nvidia-smi`; wait for them, or choose another device with `CUDA_VISIBLE_DEVICES`.

## When it is fine
A desktop, or a notebook that has a context and computes nothing, only uses memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count, levers_for, name
from hotlap.levers.support.situations import accelerator
from hotlap.records import Accelerator, Finding, Machine, ScriptFacts

title = "Other processes compute on the same device"
group: Group = "machine"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield a finding for the device that the script trains on; name free ones."""
    device = accelerator(profile.situation)
    if device is None or device.other_processes <= 0:
        return
    others = count(device.other_processes, "other process", "other processes")
    free = sum(it.other_processes == 0 for it in profile.machine.accelerators)
    yield Finding(
        rule="shared-device",
        kind="risk",
        share=exactly(0.0),
        title=f"{others.capitalize()} computed on {name(device.name)} when it was checked.",
        evidence=(f"{others} on the training device; {free} of {len(profile.machine.accelerators)} devices are free",),
        remedy=(
            "Choose a free device with CUDA_VISIBLE_DEVICES."
            if free
            else "Wait for them, or list them with nvidia-smi."
        ),
        levers=levers_for("shared-device"),
    )


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------


def _profile(*others: int, device: str = "cuda:0") -> Profile:
    devices = tuple(Accelerator(kind="cuda", name="A GPU", memory_bytes=80 << 30, other_processes=it) for it in others)
    return Profile(facts=ScriptFacts(device=device), machine=Machine(accelerators=devices))


fires = {
    "two others on the only device": _profile(2),
    "one other, and a free device next to it": _profile(1, 0),
}

silent = {
    "nothing was measured": Profile(),
    "others are on another device": _profile(0, 3),
    "training on the CPU": _profile(2, device="cpu"),
}
