"""The driver is too old for this build of torch.

## What it is
The machine has a CUDA device, but its driver branch is too old for the CUDA version of this torch build. torch cannot
use the device then, and a script that checks `torch.cuda.is_available()` falls back to the CPU.

## Why it is slow
Training runs on the CPU, usually without a warning, and takes ten to a hundred times as long.

## How to see it
The driver's version, compared with the oldest branch that supports that CUDA version (11: 450, 12: 525, 13: 580), on a
machine where training ran on the CPU. `python -c "import torch; torch.zeros(1, device='cuda')"` prints torch's own
error.

## What to do
Update the driver, or install a build of torch for an older CUDA version (pytorch.org/get-started).

## When it is fine
If the script is meant for the CPU. If training runs on the device anyway (with NVIDIA's compatibility package), this
rule is silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import levers_for, name
from hotlap.machine.doctor import missing_driver
from hotlap.records import Accelerator, Finding, Machine, PhaseAccount, ScriptFacts

title = "The driver is too old for this build of torch"
group: Group = "machine"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield a finding if training ran on the CPU and no CUDA device can be used."""
    versions = dict(profile.machine.library_versions)
    devices = [it for it in profile.machine.accelerators if it.kind == "cuda"]
    needed = [missing_driver(it, versions.get("cuda", "")) for it in devices]
    trained = profile.account.wall > 0 or profile.facts.models or profile.facts.optimizers
    if profile.on_accelerator or not trained or not devices or None in needed:
        return
    device = devices[0]
    yield Finding(
        rule="old-driver",
        kind="risk",
        share=exactly(0.0),
        title=f"Training ran on the CPU: driver {name(device.driver)} of {name(device.name)} is too old for torch.",
        evidence=(
            f"torch {name(versions.get('torch', ''))} was built for CUDA {name(versions['cuda'])}, which needs driver "
            f"{needed[0]} or newer",
        ),
        remedy="Update the driver, or install a build of torch for an older CUDA version (pytorch.org/get-started).",
        levers=levers_for("old-driver"),
    )


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------


def _profile(driver: str, cuda: str, *, device: str = "cpu") -> Profile:
    return Profile(
        facts=ScriptFacts(device=device),
        machine=Machine(
            accelerators=(Accelerator(kind="cuda", name="A GPU", memory_bytes=80 << 30, driver=driver),),
            library_versions=(("torch", "2.9.0"), ("cuda", cuda)) if cuda else (("torch", "2.9.0"),),
        ),
        account=PhaseAccount(wall=0.1, phases=(("forward", 0.1),)),
    )


fires = {
    "CUDA 12 with a driver for CUDA 11": _profile("470.199.02", "12.8"),
    "CUDA 13 with a driver for CUDA 12": _profile("550.54", "13.0"),
}

silent = {
    "nothing was measured": Profile(),
    "the oldest driver that will do": _profile("525.60.13", "12.8"),
    "the device is used all the same": _profile("470.199.02", "12.8", device="cuda:0"),
    "a build without CUDA": _profile("470.199.02", ""),
    "the driver is not known": _profile("", "12.8"),
}
