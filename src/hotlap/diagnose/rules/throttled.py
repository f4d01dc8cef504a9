"""The device reduces its clocks.

## What it is
The driver reported a reason why the training device did not run at its usual clocks: heat, a power limit, or a power
brake.

## Why it is slow
Compute time grows as the clock falls. Measurements also drift with temperature, so that small gains cannot be detected.

## How to see it
The driver's list of reasons when the machine was checked, before training began. Idling and manually set clocks are not
among them. `nvidia-smi -q -d PERFORMANCE,CLOCK,POWER` shows it while training runs.

## What to do
Heat: check airflow, dust and adjacent devices, and lower the room temperature. Power: raise the limit if it was lowered
(`nvidia-smi -pl`), or check the cables and the supply. Until then compare only runs that were timed in turns.

## When it is fine
Many devices run at their power cap under full load by design; it matters if the limit was set below the manufacturer's.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count, levers_for, name
from hotlap.levers.support.situations import accelerator
from hotlap.records import Accelerator, Finding, Machine, ScriptFacts

title = "The device reduces its clocks"
group: Group = "machine"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield a finding for the device that the script trains on."""
    device = accelerator(profile.situation)
    if device is None or not device.throttled:
        return
    reasons = tuple(name(it) for it in device.throttled)
    limit = f"; its power limit is {device.power_limit_watts:.0f} W" if device.power_limit_watts else ""
    yield Finding(
        rule="throttled",
        kind="risk",
        share=exactly(0.0),
        title=f"{name(device.name)} reduces its clocks for {count(len(reasons), 'reason')}: {reasons[0]}.",
        evidence=(f"{count(len(reasons), 'reason')} by its driver: {', '.join(reasons)}"[:160] + limit,),
        remedy=_remedy(device),
        levers=levers_for("throttled"),
    )


def _remedy(device: Accelerator) -> str:
    if any("temperature" in it for it in device.throttled):
        return (
            "Check its cooling: airflow, dust, adjacent devices. `nvidia-smi -q -d TEMPERATURE` shows its temperature."
        )
    return (
        "Check its power: the limit (`nvidia-smi -q -d POWER`), cables and supply. The same cause may also heat it up."
    )


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------


def _profile(*throttled: str, device: str = "cuda:0", others: tuple[str, ...] = ()) -> Profile:
    def make(reasons: tuple[str, ...]) -> Accelerator:
        return Accelerator(kind="cuda", name="A GPU", memory_bytes=80 << 30, throttled=reasons, power_limit_watts=300.0)

    return Profile(facts=ScriptFacts(device=device), machine=Machine(accelerators=(make(throttled), make(others))))


fires = {
    "heat": _profile("temperature (hardware)", "hardware slowdown"),
    "a power brake on the second device, which trains": _profile(device="cuda:1", others=("power brake",)),
}

silent = {
    "nothing was measured": Profile(),
    "another device is hot": _profile(others=("temperature (driver)",)),
    "training on the CPU": _profile("temperature (driver)", device="cpu"),
}
