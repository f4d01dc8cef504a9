"""Lines read tensors in every step, which would make the host wait for a device.

## What it is
`.item()`, `float(tensor)`, `.cpu()`, `.tolist()` or `if tensor > limit:` in every step of a script that trains on a
CPU: in the loop itself, in a metric's class, in another module.

## Why it is slow
On a CPU it is not slow, since nothing runs ahead. With a device, the host would wait at each of these lines until the
device has finished all queued work, and the queue of kernels would be empty afterwards.

## How to see it
Your lines that made such a call in at least half of the observed steps, directly or within a library's function.
Reading a tensor that the script creates on the host (`int(torch.randint(n, ()))`) waits for nothing. The cost of a wait
depends on the device, so it is not given here; on a device `host-sync` measures it.

## What to do
Before the script moves to a device: keep the tensor itself (`losses.append(loss.detach())`), accumulate on the device,
and read every hundredth step, or at the end of the epoch. A library may have an option to avoid its reads.

## When it is fine
A script that will only train on a CPU, and a tensor that always stays on the host.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.rules.host_sync import CALLS
from hotlap.diagnose.shares import exactly, is_unguarded
from hotlap.diagnose.wording import count, name, place
from hotlap.evidence import HostSync, RunEvidence, SyncKind
from hotlap.records import STEP_PHASES, CallSite, Finding, Phase, ScriptFacts

title = "Lines would wait for a device in every step"
group: Group = "host"
ranks_last = True

_NAME = "reads-in-every-step"
_KINDS: frozenset[SyncKind] = frozenset({"item", "cpu", "tolist", "bool", "nonzero"})
_PHASES: frozenset[Phase] = frozenset(STEP_PHASES) - {"data_wait", "optimizer"}
_SHOWN = 3
_OWN = (
    "Before it trains on a device: keep the detached tensor, and read it every hundredth step or at the end of the "
    "epoch."
)
_IN_A_LIBRARY = (
    "Before it trains on a device: check whether the library has an option to avoid them, or call it less often."
)


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding for all lines, at the one with most calls, for training on a CPU."""
    if profile.on_accelerator:
        return
    reads = [it for it in profile.evidence.syncs if _would_wait(profile, it)]
    reads.sort(key=lambda it: (-it.calls, it.site.file if it.site else "", it.site.line if it.site else 0))
    if not reads:
        return
    calls = sum(it.calls for it in reads) / profile.evidence.observed_steps
    lines = {(it.site.file, it.site.line) for it in reads if it.site}
    yield Finding(
        rule=_NAME,
        kind="hint",
        share=exactly(0.0),
        title=f"Tensors are read in every step ({calls:.2g} per step, at {count(len(lines), 'line')}); on a "
        "device each "
        "read makes the host wait.",
        evidence=(
            *(
                f"{place(it.site)}: {CALLS[it.kind]}{_within(it)}, {count(it.calls, 'call')} in {it.steps} of "
                f"{profile.evidence.observed_steps} observed steps"
                for it in reads[:_SHOWN]
            ),
            "On this CPU they do not wait; the cost of a wait on a device was not measured.",
        ),
        remedy=_IN_A_LIBRARY if all(it.within for it in reads) else _OWN,
        site=reads[0].site,
    )


def _within(sync: HostSync) -> str:
    return f" within {name(sync.within)}" if sync.within else ""


def _would_wait(profile: Profile, sync: HostSync) -> bool:
    reads = sync.kind in _KINDS and sync.phase in _PHASES and sync.site is not None
    return reads and not sync.on_device and is_unguarded(profile, sync.steps)


def _seen(*syncs: HostSync, device: str = "cpu") -> Profile:
    return Profile(
        facts=ScriptFacts(device=device),
        evidence=RunEvidence(observed_steps=40, observed_seconds=4.0, syncs=syncs),
    )


def _read(
    kind: SyncKind = "item", phase: Phase = "other", steps: int = 40, line: int = 12, within: str = ""
) -> HostSync:
    site = CallSite(role="call", file="/home/ada/metrics.py", line=line, function="update")
    return HostSync(kind=kind, phase=phase, calls=steps, steps=steps, seconds=1e-4, site=site, within=within)


fires = {
    "a metric's class reads the loss": _seen(_read()),
    "a library reads": _seen(_read(within="transformers.masking_utils.sdpa_mask")),
    "two lines, in forward and in the loop": _seen(_read("bool", "forward", line=40), _read()),
}
silent = {
    "nothing measured": Profile(),
    "behind an if": _seen(_read(steps=4)),
    "on a device, which host-sync covers": _seen(_read(), device="cuda"),
    "in the data set": _seen(_read(phase="data_wait")),
    "in evaluation": _seen(_read(phase="outside")),
    "torch's own, in the optimizer": _seen(_read(phase="optimizer")),
    "printing, which another rule covers": _seen(_read("print")),
}
