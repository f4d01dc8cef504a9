"""Saving checkpoints takes a visible part of the run.

## What it is
`torch.save`, or safetensors, between training steps: weights and the state of the optimizer are copied to the host,
serialised and written, and the script waits for all of it.

## Why it is slow
Training stops meanwhile. Adam's state is twice as large as the weights, and a network drive writes a few hundred
megabytes per second.

## How to see it
The time account of the undisturbed run, from its first step on: what saving takes, and after how many steps it
repeats. Isolated trials write to this machine's disk, even where the script would write to a slower network drive.
Saving in another thread is not counted.

## What to do
Save less often, and save the optimizer's state only if the run must be resumable. Or save in the background: copy the
state to the host and write it in a thread, or use `torch.distributed.checkpoint.async_save`. Write to a local disk, and
copy from there.

## When it is fine
If losing an hour of training costs more than the checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.outside import cost_of, how_often, part_of, share_words
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.sampled import hottest, sampled_in
from hotlap.diagnose.shares import RUN, between
from hotlap.diagnose.wording import levers_for
from hotlap.records import CallSite, CheckpointFacts, Finding, OutsidePart, RunAccount, ScriptFacts

title = "Saving checkpoints takes a visible part of the run"
group: Group = "run"

_NAME = "checkpoint-cost"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if saving takes 2 % of the run or more."""
    part = part_of(profile, "checkpoints")
    if part is None:
        return
    facts = profile.facts.checkpoints
    yield Finding(
        rule=_NAME,
        share=cost_of(part),
        title=f"Saving checkpoints takes {share_words(part)}.",
        evidence=(
            *how_often(profile, part),
            *hottest(sampled_in(profile, "checkpoint"), "it"),
            *_who_waits(profile.facts),
        ),
        remedy="Save less often, or in the background: copy the state to the host and write it in a thread, or use "
        "`torch.distributed.checkpoint.async_save`.",
        site=facts.site if facts is not None else None,
        levers=levers_for(_NAME),
    )


def _who_waits(facts: ScriptFacts) -> Iterator[str]:
    others = facts.processes - 1
    if others > 0:
        who = "the other rank waits" if others == 1 else f"the {others} other ranks wait"
        yield f"{who} for it, at the latest where gradients are exchanged next"


def _profile(share: float, *, every_steps: float | None = 100.0, processes: int = 1) -> Profile:
    estimate = between(share, share, share, RUN)
    part = OutsidePart(kind="checkpoints", blocks=2, seconds=2.5, every_steps=every_steps, share=estimate)
    return Profile(
        facts=ScriptFacts(
            processes=processes,
            checkpoints=CheckpointFacts(saves=4, site=CallSite(role="call", file="/home/ada/train.py", line=77)),
        ),
        run_account=RunAccount(
            steps=300, step_seconds=0.1, step_share=between(1 - share, 1 - share, 1 - share, RUN), outside=(part,)
        ),
    )


fires = {
    "a fifth of the run": _profile(0.2),
    "at most a tenth": _profile(0.1, every_steps=None),
    "other ranks wait": _profile(0.1, processes=4),
}
silent = {
    "nothing measured": Profile(),
    "one percent": _profile(0.01),
}
