"""The device is connected by a narrow PCIe link, and copies to it take time.

## What it is
An accelerator reaches the host's memory over PCIe. Here device and slot support less than half of sixteen lanes of
generation 3: a riser, a slot with few lanes, or an old generation.

## Why it is slow
Every batch crosses that link, and so do gradients if devices have no direct link to each other.

## How to see it
The best generation and width that the driver reports for device and slot (not the current ones, which fall when the
link idles), and the share of the step that copies to the device take. If the measured rate of pinned copies is higher
than such a link allows, the measurement counts.

## What to do
Use a slot with more lanes. Otherwise send less: smaller types (bytes instead of float32, normalised on the device),
pinned memory and `non_blocking=True` so that copies overlap with computation.

## When it is fine
If batches are small and copies overlap with computation. Then this rule is silent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import MATERIAL, at_most, phase_share
from hotlap.diagnose.wording import levers_for, name, percent, share_of_step
from hotlap.levers.support.situations import accelerator
from hotlap.records import Accelerator, Ceilings, Finding, Machine, PhaseAccount, ScriptFacts

title = "The device is connected by a narrow PCIe link"
group: Group = "machine"

# Usable bytes per second of one lane, by generation: transfers per second times the line code (8b/10b, from the third
# generation on 128b/130b, from the sixth on 242/256 flits). Source: the PCI Express Base Specifications.
_LANE_BYTES_PER_SECOND = {1: 2.5e8, 2: 5.0e8, 3: 9.85e8, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
_USUAL_BYTES_PER_SECOND = 16 * _LANE_BYTES_PER_SECOND[3]
_NARROW = 0.45
_FORM = re.compile(r"generation (\d{1,2}) x(\d{1,3})")


def check(profile: Profile) -> Iterator[Finding]:
    """Yield a bounded cost: the saving of a usual link if only the link limits copies."""
    device = accelerator(profile.situation)
    rate = _bytes_per_second(device.pcie) if device else None
    if device is None or rate is None or rate >= _NARROW * _USUAL_BYTES_PER_SECOND or _measured_faster(profile, rate):
        return
    copying = phase_share(profile, "host_to_device")
    share = at_most(copying.value * (1 - rate / _USUAL_BYTES_PER_SECOND))
    if share.value < MATERIAL:
        return
    yield Finding(
        rule="narrow-pcie",
        share=share,
        title=f"{name(device.name)} is connected by PCIe {device.pcie}: at most {percent(share.value)} of the step.",
        evidence=(
            f"it carries {rate / 1e9:.1f} GB/s, sixteen lanes of generation 3 {_USUAL_BYTES_PER_SECOND / 1e9:.1f}",
            f"copies to the device take {share_of_step(copying)}",
        ),
        remedy="Use a slot with more lanes. Or send less: bytes instead of float32, normalised on the device; pinned "
        "memory with non_blocking=True lets copies overlap with computation.",
        levers=levers_for("narrow-pcie"),
    )


def _bytes_per_second(pcie: str) -> float | None:
    """Return the bytes per second of ``generation 3 x4``; None for any other text."""
    found = _FORM.fullmatch(pcie)
    if found is None or int(found[1]) not in _LANE_BYTES_PER_SECOND or int(found[2]) < 1:
        return None
    return int(found[2]) * _LANE_BYTES_PER_SECOND[int(found[1])]


def _measured_faster(profile: Profile, bytes_per_second: float) -> bool:
    measured = profile.machine.ceilings.host_to_device_pinned_bytes_per_second
    return measured is not None and measured > bytes_per_second


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------


def _profile(pcie: str, *, copying: float = 0.02, measured: float | None = None, device: str = "cuda:0") -> Profile:
    return Profile(
        facts=ScriptFacts(device=device),
        machine=Machine(
            accelerators=(Accelerator(kind="cuda", name="A GPU", memory_bytes=24 << 30, pcie=pcie),),
            ceilings=Ceilings(host_to_device_pinned_bytes_per_second=measured),
        ),
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("host_to_device", copying),
                ("forward", 0.1 - copying),
            ),
        ),
    )


fires = {
    "a riser of one lane": _profile("generation 3 x1"),
    "four lanes, as measured": _profile("generation 3 x4", measured=3.2e9),
    "a very old slot": _profile("generation 1 x16", copying=0.05),
}

silent = {
    "nothing was measured": Profile(),
    "eight lanes of generation 3": _profile("generation 3 x8"),
    "four lanes of generation 4": _profile("generation 4 x4"),
    "copies cost nothing": _profile("generation 3 x1", copying=0.001),
    "copies are faster than that": _profile("generation 3 x4", measured=12e9),
    "a text of another form": _profile("NVLink"),
}
