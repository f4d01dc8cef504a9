"""Choosing the samples of a batch takes a visible part of the step.

## What it is
The sampler or batch sampler of the `DataLoader` takes long to yield the indices of the next batch: weights over the
whole data set in Python, a sort by length, a search for samples that fit together.

## Why it is slow
A sampler runs in the training process, even if workers load the samples, and the model waits for it. More workers do
not help.

## How to see it
The training thread's lines while a loader gets indices from its sampler, sampled about a hundred times per second.
Their share of the observed steps is the cost; it is at most the data wait.

## What to do
Choose the indices of many batches in one operation on a tensor (`torch.multinomial`, `torch.argsort`), and compute
weights once per epoch instead of once per batch.

## When it is fine
If each choice depends on the previous step, as in active learning. Then compute it on tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hotlap.diagnose.api import Group
from hotlap.diagnose.data_wait import choosing, sampler_lines
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.sampled import hottest, line_with_most_time
from hotlap.diagnose.shares import is_material
from hotlap.diagnose.wording import count, levers_for, percent, time_in
from hotlap.evidence import LineSamples, RunEvidence, SampledLine
from hotlap.records import CallSite, Finding, PhaseAccount

title = "Choosing the samples of a batch takes long"
group: Group = "data"

_NAME = "slow-sampler"
_FEWEST_SAMPLES = 10


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding at the samplers' costliest line if they take a material part of the step."""
    lines = sampler_lines(profile)
    share, samples = choosing(profile), sum(it.samples for it in lines)
    if samples < _FEWEST_SAMPLES or not is_material(share):
        return
    yield Finding(
        rule=_NAME,
        share=share,
        title=f"Choosing the samples of each batch takes {percent(share.value)} of the step.",
        evidence=(
            f"{count(samples, 'sample')} of the training thread found it in the sampler",
            time_in(profile.account, "data_wait"),
            *hottest(lines, "it"),
        ),
        remedy="Choose the indices of many batches in one operation on a tensor (`torch.multinomial`, "
        "`torch.argsort`), once per epoch. A sampler runs in the training process: more workers do not help.",
        site=line_with_most_time(lines),
        levers=levers_for(_NAME),
    )


def _profile(*lines: SampledLine, data_wait: float = 0.04) -> Profile:
    """A step of 100 ms, forty of which were observed."""
    return Profile(
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("data_wait", data_wait),
                ("forward", 0.1 - data_wait),
            ),
        ),
        evidence=RunEvidence(
            observed_steps=40, observed_seconds=4.0, sampled=LineSamples(interval_seconds=0.01, lines=lines)
        ),
    )


_WEIGHTS = SampledLine(
    phase="data_wait",
    samples=120,
    seconds=1.2,
    sampler=True,
    site=CallSite(role="call", file="/home/ada/sampling.py", line=24, function="draw"),
)

_LIBRARYS = msgspec.structs.replace(_WEIGHTS, site=None, called="grouped.sampler.BySize.__iter__")

fires = {
    "weights in Python take three tenths of the step": _profile(_WEIGHTS),
    "two lines, of which the costlier one is named": _profile(
        msgspec.structs.replace(_WEIGHTS, samples=20, seconds=0.2, site=CallSite(role="call", file="/a.py", line=3)),
        _WEIGHTS,
    ),
    "a library's sampler": _profile(_LIBRARYS),
}
silent = {
    "nothing measured": Profile(),
    "the data set's own work": _profile(msgspec.structs.replace(_WEIGHTS, sampler=False)),
    "one percent of the step": _profile(msgspec.structs.replace(_WEIGHTS, samples=4, seconds=0.04)),
    "an evaluation's sampler": _profile(msgspec.structs.replace(_WEIGHTS, phase="evaluation")),
    "the untouched step does not wait": _profile(_WEIGHTS, data_wait=0.001),
}
