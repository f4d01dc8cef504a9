"""One process drives all devices with torch.nn.DataParallel.

## What it is
`nn.DataParallel` runs the model on several devices from the threads of a single process.

## Why it is slow
In every step the whole model is copied from the first device to the others, inputs are scattered and outputs gathered
there. The threads share one interpreter lock, so the devices take turns waiting for Python, and the first device also
computes the loss and the optimizer step while the others idle.

## How to see it
The script created such a module, and the machine has more than one device.

## What to do
Use one process per device with `DistributedDataParallel`, started by `torchrun --nproc-per-node=gpu train.py`, and a
`DistributedSampler` for the data. The batch size is then that of one device.

## When it is fine
For a quick experiment in a notebook, or if only a single device is used.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import levers_for, name, place
from hotlap.evidence import RunEvidence
from hotlap.records import Accelerator, CallSite, Finding, Machine, ScriptFacts

title = "One process drives all devices"
group: Group = "distributed"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield a hint: the cost depends on the model, and is known only after the change."""
    devices = profile.machine.accelerators
    evidence = profile.evidence
    if not evidence.data_parallel or not profile.on_accelerator or len(devices) < 2:
        return
    yield Finding(
        rule="data-parallel",
        kind="hint",
        share=exactly(0.0),
        title=f"One process drives the machine's {len(devices)} devices with nn.DataParallel.",
        evidence=(
            f"nn.DataParallel was created at {place(evidence.data_parallel_site)}; the machine has {len(devices)} x "
            f"{name(devices[0].name)}",
        ),
        remedy="Use DistributedDataParallel with one process per device (`torchrun --nproc-per-node=gpu "
        "train.py`) and a "
        "DistributedSampler; the model is then copied once, and Python runs on all devices at once.",
        site=evidence.data_parallel_site,
        levers=levers_for("data-parallel"),
    )


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------


def _profile(devices: int, *, device: str = "cuda:0", data_parallel: bool = True) -> Profile:
    site = CallSite(role="model", file="train.py", line=24)
    return Profile(
        facts=ScriptFacts(device=device),
        machine=Machine(accelerators=(Accelerator(kind="cuda", name="A GPU", memory_bytes=80 << 30),) * devices),
        evidence=RunEvidence(data_parallel=data_parallel, data_parallel_site=site if data_parallel else None),
    )


fires = {
    "four devices": _profile(4),
    "two devices, at an unknown line": msgspec.structs.replace(_profile(2), evidence=RunEvidence(data_parallel=True)),
}

silent = {
    "nothing was measured": Profile(),
    "one device, for which it does nothing": _profile(1),
    "four devices without it": _profile(4, data_parallel=False),
    "on the CPU it only calls the model": _profile(4, device="cpu"),
}
