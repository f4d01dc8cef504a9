"""Devices exchange gradients while nothing else runs.

## What it is
The ranks exchange gradients or parameters in each step. Communication that overlaps with computation is free. This is
the rest: time in which the device did nothing but communicate.

## Why it is slow
Every rank waits for it, and it grows with more ranks, slower links or a smaller batch.

## How to see it
In the trace of the profiled steps: time in which a communication kernel ran and no other kernel did; with gloo, in
which a collective ran and no operator did. The rank with the least counts, since on the others part of it is waiting
for that rank (see the rule `straggler`). The collective that most of it was in is named by its place in the step: those
of `DistributedDataParallel` are its buckets, in the order in which backward fills them.

## What to do
Give backward something to overlap with: do not wait for gradients before the last one is there, keep
`find_unused_parameters` off, choose `bucket_cap_mb` so that several buckets fill during backward. Exchange less often:
`no_sync()` in all but the last micro-batch of an accumulated step, or a larger batch per rank. Check that the fast
links are used (`NCCL_DEBUG=INFO` names them).

## When it is fine
If the model is so large relative to the links that no computation is left to overlap with, and the batch must not grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from hotlap.diagnose.api import Group
from hotlap.diagnose.communication import RankSteps, ranks_on_host, traced_ranks
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.rank_traces import rank_trace
from hotlap.diagnose.shares import is_material, share_of_steps
from hotlap.diagnose.wording import count, duration, levers_for, percent, share_of_step, size
from hotlap.records import DataParallelFacts, Finding, ScriptFacts
from hotlap.traces.collective_records import ExposedCall, ExposedCommunication

title = "Devices exchange gradients while nothing else runs"
group: Group = "distributed"

_FEWEST_STEPS = 3


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding, about the rank that waits least.

    Its share is that of a profiled step, which is longer than an unmodified one, so the share is underestimated.
    """
    known = traced_ranks(profile) or ranks_on_host(profile)
    ranks = [it for it in known if len(it.step) >= _FEWEST_STEPS]
    if not ranks:
        return
    least = min(ranks, key=lambda it: sum(it.exposed) / max(1, sum(it.step)))
    share = share_of_steps(least.exposed, least.step)
    if not is_material(share):
        return
    yield Finding(
        rule="exposed-communication",
        share=share,
        title=f"Communication that does not overlap with computation takes {share_of_step(share)}.",
        evidence=tuple(_evidence(profile, ranks, least)),
        remedy=_remedy(profile),
        levers=levers_for("exposed-communication"),
    )


def _evidence(profile: Profile, ranks: list[RankSteps], least: RankSteps) -> Iterator[str]:
    steps = count(len(least.step), "profiled step")
    yield f"rank {least.rank}: {duration(fmean(least.exposed) / 1e9)} of {duration(fmean(least.step) / 1e9)}, {steps}"
    if len(ranks) > 1:
        most = max(ranks, key=lambda it: sum(it.exposed) / max(1, sum(it.step)))
        share = sum(most.exposed) / max(1, sum(most.step))
        yield f"the least of {len(ranks)} ranks; on rank {most.rank} it is {percent(share)}, with waiting for others"
    yield from _which(profile, least)
    if profile.facts.backwards_per_step >= 2:
        yield f"{profile.facts.backwards_per_step:.3g} backward passes for each optimizer step"


def _which(profile: Profile, least: RankSteps) -> Iterator[str]:
    """The collective that most of it was in."""
    calls = next((it.calls for it in profile.exposed if it.rank == least.rank), ())
    if not calls or not sum(least.exposed):
        return
    most = calls[0]
    bucket = " (a bucket of DistributedDataParallel)" if profile.facts.data_parallel else ""
    message = f" of {size(most.message_bytes)}" if most.message_bytes else ""
    part = percent(min(1.0, most.nanoseconds / sum(least.exposed)))
    yield f"{part} of it in {most.collective} {most.position} of {most.count} of a step{message}{bucket}"


def _remedy(profile: Profile) -> str:
    if profile.facts.backwards_per_step >= 2:
        return (
            "Wrap all but the last micro-batch of a step in `model.no_sync()`, so that gradients are exchanged "
            "once per step."
        )
    return (
        "Overlap it with backward: several gradient buckets (`bucket_cap_mb`), `find_unused_parameters` off. Or "
        "exchange "
        "less often: a larger batch per rank, or accumulation under `no_sync()` (both change what is learned)."
    )


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------


_FACTS = ScriptFacts(device="cuda:0", processes=2)


def _on_host(rank: int, *exposed_ms: float) -> ExposedCommunication:
    """Steps of 100 ms, whose exposed communication is all in the second of two buckets."""
    exposed = tuple(round(it * 1e6) for it in exposed_ms)
    bucket = ExposedCall(
        collective="all-reduce", message_bytes=25 * 2**20, position=2, count=2, nanoseconds=sum(exposed)
    )
    return ExposedCommunication(rank=rank, steps=(100_000_000,) * len(exposed), exposed=exposed, calls=(bucket,))


fires = {
    "a quarter of the step on both ranks": Profile(
        facts=_FACTS, breakdowns=(rank_trace(0, 25, 26, 24, 25), rank_trace(1, 25, 24, 26, 26))
    ),
    "the last bucket, exchanged by gloo": Profile(
        facts=ScriptFacts(processes=2, data_parallel=(DataParallelFacts(backend="gloo", processes=2),)),
        exposed=(_on_host(0, 20, 22, 21), _on_host(1, 25, 24, 26)),
    ),
    "every micro-batch exchanges": Profile(
        facts=ScriptFacts(device="cuda:0", processes=2, backwards_per_step=4.0), breakdowns=(rank_trace(0, 40, 41, 42),)
    ),
}

silent = {
    "nothing was measured": Profile(),
    "hidden behind backward": Profile(facts=_FACTS, breakdowns=(rank_trace(0, 1, 1, 1), rank_trace(1, 1, 0, 1))),
    "one rank waits for the other, which does not wait": Profile(
        facts=_FACTS, breakdowns=(rank_trace(0, 30, 31, 30), rank_trace(1, 0, 1, 1))
    ),
    "one device": Profile(breakdowns=(rank_trace(0, 0, 0, 0, communicates=False),)),
    "gloo exchanges next to operators": Profile(
        facts=ScriptFacts(processes=2), exposed=(_on_host(0, 1, 1, 1), _on_host(1, 30, 30, 31))
    ),
    "a trace that cannot be trusted": Profile(
        facts=_FACTS, breakdowns=(rank_trace(0, 25, 25, 25, unreliable="kernels are missing"),)
    ),
}
