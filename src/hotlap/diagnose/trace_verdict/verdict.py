"""One trace's findings, the costliest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from hotlap.diagnose.profile import Profile
from hotlap.diagnose.rank import diagnose
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.trace_verdict.host import host_findings
from hotlap.diagnose.trace_verdict.idle import communication_finding, copies_finding, idle_findings
from hotlap.diagnose.trace_verdict.kernels import computing_finding, elementwise_finding, precision_findings
from hotlap.diagnose.trace_verdict.products import ProductRate, product_rates
from hotlap.diagnose.trace_verdict.profile import profile_of
from hotlap.diagnose.trace_verdict.small_grids import small_grids_finding
from hotlap.diagnose.trace_verdict.utilisation import StepWork, step_work
from hotlap.records import Finding, Record
from hotlap.traces.conclusion import WORTH_NAMING, conclusion_of
from hotlap.traces.records import Breakdown, Conclusion, DeviceBreakdown, OperatorRow

_FOUND_BY_RULES = frozenset({"launch-bound", "python-overhead", "exposed-communication", "slow-matmul-precision"})
"""Causes that both a rule and the trace alone may find: the rule's finding is kept."""


class TraceVerdict(Record, frozen=True, kw_only=True):
    """The verdict of a trace: the largest loss, and every cause with its evidence and remedy, the costliest first.

    ``path`` is empty for what several ranks of one run show together. ``device`` is the one that it is about, the
    busiest of so many ``devices``; None for a trace without any. ``products`` are the rates of the busiest
    device's matrix products, where their sizes were recorded; ``work`` are the operations of its steps.
    """

    path: str
    device: int | None = None
    devices: int = 0
    conclusion: Conclusion | None = None
    findings: tuple[Finding, ...] = ()
    products: tuple[ProductRate, ...] = ()
    work: StepWork | None = None


def verdict_of(breakdown: Breakdown, operators: Sequence[OperatorRow] = ()) -> TraceVerdict:
    """Judge a trace, with all of its operators where they were read; an unreliable one gets a finding that says so."""
    found = _unreliable(breakdown) if breakdown.unreliable else list(_findings(breakdown, operators))
    if not breakdown.steps:
        found = [without_steps(it) for it in found]
    device = breakdown.busiest_device
    return TraceVerdict(
        path=breakdown.facts.path,
        device=device.device if device is not None else None,
        devices=len(breakdown.devices),
        conclusion=conclusion_of(breakdown),
        findings=tuple(by_cost(found)),
        products=product_rates(device, operators) if device is not None and _comparable(breakdown) else (),
        work=step_work(breakdown, operators) if _comparable(breakdown) else None,
    )


def _comparable(breakdown: Breakdown) -> bool:
    """Whether operators' device time can be compared with one peak: operators are not recorded by device."""
    return not breakdown.unreliable and len({it.name for it in breakdown.devices}) == 1


def by_cost(found: Iterable[Finding]) -> list[Finding]:
    """The costliest first, then risks and hints. No bound comes before a measured cost that is worth naming as the
    largest loss; among smaller costs a bound counts in full."""

    def order(it: Finding) -> tuple[bool, bool, float]:
        clearly = it.share.value >= WORTH_NAMING and not it.share.is_bound
        return it.kind != "cost", not clearly, -it.share.value

    return sorted(found, key=order)


def _findings(breakdown: Breakdown, operators: Sequence[OperatorRow]) -> Iterator[Finding]:
    profile = profile_of([breakdown], operators)
    device = breakdown.busiest_device
    ruled = diagnose(profile)
    yield from ruled
    if device is None:
        names = {it.rule for it in ruled}
        yield from (it for it in host_findings(breakdown, operators) if it.rule not in names)
        return
    found = _FOUND_BY_RULES & {it.rule for it in ruled}
    added = [it for it in _of_device(profile, breakdown, device) if it.rule not in found]
    yield from added
    if not any(it.kind == "cost" for it in (*ruled, *added)):
        yield computing_finding(device)


def _of_device(profile: Profile, breakdown: Breakdown, device: DeviceBreakdown) -> Iterator[Finding]:
    yield from idle_findings(profile, device)
    yield from communication_finding(device)
    yield from copies_finding(device)
    yield from precision_findings(profile, breakdown, device)
    yield from elementwise_finding(device)
    yield from small_grids_finding(profile, device)


def _unreliable(breakdown: Breakdown) -> list[Finding]:
    return [
        Finding(
            rule="unreliable-trace",
            kind="hint",
            share=exactly(0.0),
            title="The trace lacks a part of the device's work, so no cause can be determined.",
            evidence=(breakdown.unreliable,),
            remedy='Record it again without CUDA graphs (`torch.compile` without `mode="reduce-overhead"`), or with a '
            "newer version of torch, which records the kernels of graphs.",
        )
    ]


def without_steps(found: Finding) -> Finding:
    """Rename shares of the step to shares of the trace if it marks no steps."""
    return msgspec.structs.replace(
        found, title=_of_the_trace(found.title), evidence=tuple(map(_of_the_trace, found.evidence))
    )


def _of_the_trace(text: str) -> str:
    return text.replace("of the step", "of the trace")
