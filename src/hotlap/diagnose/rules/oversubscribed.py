"""More threads compute than there are cores.

## What it is
The training processes together compute with more threads than the cores that they may use. This happens if several
ranks each use all cores, and in containers: programs see the cores of the whole machine and size their thread pools
accordingly, while a quota allows only some.

## Why it is slow
The threads of one operator wait for the last of them, and that one waits for a core. Once a quota is used up, all
threads are stopped for the rest of the period. Half as many threads are then often faster.

## How to see it
The number of training processes times torch's threads in each, compared with the cores that affinity and control groups
allow.

## What to do
Give each process its share: `torch.set_num_threads(n)`, or `OMP_NUM_THREADS=n` before python. Or request more cores.

## When it is fine
If training runs on an accelerator, torch's threads are mostly asleep, and this rule is silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count, levers_for
from hotlap.levers.support.situations import cores_per_process
from hotlap.records import Finding, Machine, PhaseAccount, ScriptFacts

title = "More threads compute than there are cores"
group: Group = "machine"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield a hint: the gain of fewer threads depends on the operators; a trial measures it."""
    facts, machine = profile.facts, profile.machine
    threads = facts.threads * max(1, facts.processes)
    known = bool(machine.processor or machine.visible_cores)
    if profile.on_accelerator or not known or threads <= machine.cores:
        return
    yield Finding(
        rule="oversubscribed",
        kind="hint",
        share=exactly(0.0),
        title=f"{threads} threads compute on {count(machine.cores, 'core')}.",
        evidence=tuple(_evidence(profile)),
        remedy=f"Set torch.set_num_threads({cores_per_process(profile.situation)}), or set OMP_NUM_THREADS to the same "
        "before python.",
        levers=levers_for("oversubscribed", profile.situation),
    )


def _evidence(profile: Profile) -> Iterator[str]:
    facts, machine = profile.facts, profile.machine
    processes = count(max(1, facts.processes), "training process", "training processes")
    yield f"{processes} with {count(facts.threads, 'thread')} each, {count(machine.cores, 'core')} to run on"
    if machine.visible_cores > machine.cores:
        yield f"programs see {count(machine.visible_cores, 'core')}, but a quota lets them use {machine.cores}"
    variable = dict(machine.environment).get("OMP_NUM_THREADS", "")
    if variable.isascii() and variable.isdecimal() and len(variable) < 6:
        yield f"OMP_NUM_THREADS={variable} is in the environment"


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------


def _profile(threads: int, *, processes: int = 1, cores: int = 8, visible: int = 8, device: str = "cpu") -> Profile:
    return Profile(
        facts=ScriptFacts(device=device, threads=threads, processes=processes),
        machine=Machine(processor="A CPU", cores=cores, physical_cores=cores, visible_cores=visible),
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("forward", 0.04),
                ("backward", 0.06),
            ),
        ),
    )


fires = {
    "a container that sees the whole machine": _profile(32, cores=4, visible=64),
    "two ranks that each take all cores": _profile(8, processes=2),
}

silent = {
    "nothing was measured": Profile(),
    "a thread for each core": _profile(8),
    "a quota, and a script that respects it": _profile(4, cores=4, visible=64),
    "training on an accelerator": _profile(32, cores=4, visible=64, device="cuda:0"),
    "the machine is unknown": Profile(facts=ScriptFacts(threads=8)),
}
