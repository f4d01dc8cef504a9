"""Compare two sides: the step, its parts, the kernels, the findings, and what may explain the difference.

Pure functions of the two sides. A difference is not called slower or faster when it may come from too few steps, from
run-to-run noise, from a profiler, which makes steps longer, or from different machines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hotlap.compare.records import (
    Account,
    Amount,
    Difference,
    DiffRow,
    DiffTable,
    FactChange,
    FindingChange,
    Reason,
    Side,
    SideSummary,
    Table,
    Verdict,
)
from hotlap.measure.means import RUN_SPREAD, SAME_WORK_SPREAD, relative_change
from hotlap.records import Estimate, Finding

MOST_ROWS = 200
_TABLES: tuple[Table, ...] = ("phases", "device", "host", "idle", "kernels", "operators")
_OTHER_SAMPLES = 0.02
_NO_CHANGE_SECONDS = 5e-10
"""Half a nanosecond: smaller values are rounding errors."""

_BUSY_WITH_OTHERS = 0.2
"""Above this share of busy cores, other processes may explain the length of a step."""

_SAME_COUNTS = 0.02
"""Two sides do the same work if their counts of kernels or operators differ by less than this share."""

_WAITING = frozenset(
    {"data_loader", "communication", "host_sync", "blocking_copy", "capture_or_compile", "initialisation", "profiler"}
)
"""Causes of idle time other than the speed of the host or of the device."""

_HOST_WAITING = frozenset({"loader", "sync"})
_EXPLAINED = 0.5

_CLEARLY_OTHER_COST = 0.02
_TIMES_THE_UNKNOWN = 2.0


class _Judged(NamedTuple):
    """The change of the step, its verdict, and the spread between runs of the same code."""

    change: Estimate | None
    verdict: Verdict
    spread: float


def difference(before: Side, after: Side) -> Difference:
    """Compare two sides, per step of ``before``.

    ``after`` is scaled to as many samples as a step of ``before`` holds, if both report their samples.
    Raises :class:`ValueError` if only one of them marks steps: a step cannot be compared with a whole trace.
    """
    if before.marks_steps != after.marks_steps:
        raise ValueError("Only one of the sides marks steps.")
    factor = _samples_factor(before, after)
    like_traces = "trace" in (before.kind, after.kind) and bool(before.traced_seconds and after.traced_seconds)
    first, second = (_as_traced(before), _as_traced(after)) if like_traces else (before, after)
    change = relative_change(first.step_seconds, [it * factor for it in second.step_seconds])
    step = _row("step", Amount(name="", seconds=first.seconds), Amount(name="", seconds=second.seconds * factor))
    traced = _traced_step(before, after, factor)
    spread = _spread(before, after, factor, traced) if first.profiled and second.profiled else RUN_SPREAD
    verdict = _verdict(first, second, change, spread)
    return Difference(
        before=_summary(before),
        after=_summary(after),
        per="step" if before.marks_steps else "trace",
        verdict=verdict,
        step=step,
        change=change,
        traced_step=traced,
        tables=tuple(_tables(before, after, factor, step, traced)),
        findings=tuple(_finding_changes(before.findings, after.findings)),
        facts=tuple(_fact_changes(before, after)),
        warnings=tuple(_warnings(before, after, first, second, _Judged(change, verdict, spread), factor)),
    )


def _as_traced(side: Side) -> Side:
    """The side with only its profiled steps, which are comparable with those of a trace."""
    if side.kind == "trace":
        return side
    return Side(
        path=side.path,
        kind=side.kind,
        seconds=side.traced_seconds,
        step_seconds=side.traced_step_seconds,
        profiled=True,
        on_device=side.on_device,
        facts=side.facts,
    )


def _summary(side: Side) -> SideSummary:
    return SideSummary(
        path=side.path,
        kind=side.kind,
        title=side.title,
        steps=len(side.step_seconds),
        profiled=side.profiled,
        plan=side.plan,
        gain=side.gain,
    )


def _samples_factor(before: Side, after: Side) -> float:
    if not before.samples_per_step or not after.samples_per_step:
        return 1.0
    factor = before.samples_per_step / after.samples_per_step
    return 1.0 if abs(factor - 1) < _OTHER_SAMPLES else factor


# ---------------------------------------------------------------------------------------------
# The step as a whole
# ---------------------------------------------------------------------------------------------


def _verdict(first: Side, second: Side, change: Estimate | None, spread: float) -> Verdict:
    """Slower or faster only if the whole interval exceeds the spread between runs of the same code."""
    if _other_machine(first, second) or _other_device(first, second) or first.profiled != second.profiled:
        return "not-comparable"
    if not first.marks_steps or _disturbed(first, second):
        return "not-comparable"
    if change is None:
        return "no-clear-change"
    if change.low > spread:
        return "slower"
    return "faster" if change.high < -spread else "no-clear-change"


def _spread(before: Side, after: Side, factor: float, traced: DiffRow | None) -> float:
    """The spread between single runs of the same code.

    It is larger if both sides do the same work under a profiler and no wait explains the difference.
    """
    if traced is None or not _same_work(before, after, factor):
        return RUN_SPREAD
    change = traced.change_seconds
    waits = _change_of(before, after, factor, "idle", _WAITING) + _change_of(
        before, after, factor, "host", _HOST_WAITING
    )
    waits += _change_of(before, after, factor, "device", frozenset({"exposed_communication"}))
    return RUN_SPREAD if waits * change > 0 and abs(waits) >= _EXPLAINED * abs(change) else SAME_WORK_SPREAD


def _same_work(before: Side, after: Side, factor: float) -> bool:
    """Whether both launch the same kernels (without a device: call the same operators) equally often."""
    for table in ("kernels", "operators"):
        first, second = _account(before, table), _account(after, table)
        if first is not None and second is not None:
            befores = {it.name: it.count or 0.0 for it in first.amounts}
            afters = {it.name: factor * (it.count or 0.0) for it in second.amounts}
            names = {*befores, *afters}
            apart = sum(abs(befores.get(it, 0.0) - afters.get(it, 0.0)) for it in names)
            return 0 < sum(befores.values()) * _SAME_COUNTS >= apart
    return False


def _change_of(before: Side, after: Side, factor: float, table: Table, names: frozenset[str]) -> float:
    """The total change of some rows of a table, in seconds per step."""
    first, second = _account(before, table), _account(after, table)
    if first is None or second is None:
        return 0.0
    was = sum(it.seconds for it in first.amounts if it.name in names)
    return factor * sum(it.seconds for it in second.amounts if it.name in names) - was


def _other_machine(first: Side, second: Side) -> bool:
    """Whether both sides name their processor or accelerators, and the names differ."""
    known = {(it.kind, it.name): it.text for it in first.facts}
    return any(it.kind == "machine" and known.get((it.kind, it.name), it.text) != it.text for it in second.facts)


def _other_device(first: Side, second: Side) -> bool:
    """Whether an accelerator worked on one side only."""
    return None not in (first.on_device, second.on_device) and first.on_device != second.on_device


def _disturbed(*sides: Side) -> list[Side]:
    return [it for it in sides if it.others_share >= _BUSY_WITH_OTHERS]


def _traced_step(before: Side, after: Side, factor: float) -> DiffRow | None:
    if not before.traced_seconds or not after.traced_seconds:
        return None
    return _row(
        "profiled step",
        Amount(name="", seconds=before.traced_seconds),
        Amount(name="", seconds=after.traced_seconds * factor),
    )


# ---------------------------------------------------------------------------------------------
# Its parts
# ---------------------------------------------------------------------------------------------


def _tables(before: Side, after: Side, factor: float, step: DiffRow, traced: DiffRow | None) -> Iterator[DiffTable]:
    """The tables that both sides have, each compared with the step it belongs to."""
    for table in _TABLES:
        first, second = _account(before, table), _account(after, table)
        whole = step if table == "phases" else traced
        if first is None or second is None or whole is None:
            continue
        rows = sorted(_rows(first, second, factor, whole), key=lambda it: (-abs(it.change_seconds), it.name))
        if rows:
            yield DiffTable(table=table, rows=tuple(rows[:MOST_ROWS]), rows_left_out=max(0, len(rows) - MOST_ROWS))


def _account(side: Side, table: Table) -> Account | None:
    return next((it for it in side.accounts if it.table == table), None)


def _rows(first: Account, second: Account, factor: float, whole: DiffRow) -> Iterator[DiffRow]:
    """One row for each name of either side, without those that one side may have cut off."""
    befores = {it.name: it for it in first.amounts}
    afters = {it.name: _scaled(it, factor) for it in second.amounts}
    for name in {**befores, **afters}:
        before, after = befores.get(name), afters.get(name)
        if before is None and after is not None and _may_be_unknown(after, first):
            continue
        if after is None and before is not None and _may_be_unknown(before, second):
            continue
        yield _row(name, before, after, whole)


def _scaled(amount: Amount, factor: float) -> Amount:
    counted = None if amount.count is None else amount.count * factor
    return Amount(name=amount.name, seconds=amount.seconds * factor, count=counted)


def _may_be_unknown(present: Amount, missing_in: Account) -> bool:
    return present.seconds < _TIMES_THE_UNKNOWN * missing_in.unknown_below_seconds


def _row(name: str, before: Amount | None, after: Amount | None, whole: DiffRow | None = None) -> DiffRow:
    was, became = before.seconds if before else 0.0, after.seconds if after else 0.0
    change = became - was
    return DiffRow(
        name=name,
        before_seconds=was,
        after_seconds=became,
        change_seconds=change,
        share_of_change=change / whole.change_seconds if whole is not None and _is_clear(whole) else None,
        before_count=before.count if before else 0.0 if after and after.count is not None else None,
        after_count=after.count if after else 0.0 if before and before.count is not None else None,
        reason=_reason(before, after),
    )


def _is_clear(whole: DiffRow) -> bool:
    """Shares of a change close to zero would be large numbers without a meaning."""
    return whole.before_seconds > 0 and abs(whole.change_seconds) > RUN_SPREAD * whole.before_seconds


def _reason(before: Amount | None, after: Amount | None) -> Reason:
    """What contributed most: the count (at the former duration), or the duration (at the present count)."""
    if before is None or after is None:
        return "appeared" if before is None else "vanished"
    if not before.count or not after.count or abs(after.seconds - before.seconds) < _NO_CHANGE_SECONDS:
        return ""
    mean = before.seconds / before.count
    by_count = (after.count - before.count) * mean
    by_length = after.seconds - after.count * mean
    if abs(by_count) >= abs(by_length):
        return "more-often" if by_count > 0 else "less-often"
    return "slower-each" if by_length > 0 else "faster-each"


# ---------------------------------------------------------------------------------------------
# Findings
# ---------------------------------------------------------------------------------------------


def _finding_changes(before: Sequence[Finding], after: Sequence[Finding]) -> Iterator[FindingChange]:
    """Pair findings by rule, then by place, then by order, since lines move when a script is edited."""
    befores, afters = _by_rule(before), _by_rule(after)
    for rule in {**befores, **afters}:
        yield from _changes_of_rule(rule, befores.get(rule, []), afters.get(rule, []))


def _by_rule(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    grouped: dict[str, list[Finding]] = defaultdict(list)
    for it in findings:
        grouped[it.rule].append(it)
    return grouped


def _changes_of_rule(rule: str, befores: list[Finding], afters: list[Finding]) -> Iterator[FindingChange]:
    pairs = [(was, now) for was in befores for now in afters if was.site is not None and was.site == now.site]
    pairs = _each_once(pairs)
    unmatched_before = [it for it in befores if all(it is not was for was, _ in pairs)]
    unmatched_after = [it for it in afters if all(it is not now for _, now in pairs)]
    pairs += list(zip(unmatched_before, unmatched_after, strict=False))
    for was, now in pairs:
        if now.share.low > was.share.high + _CLEARLY_OTHER_COST:
            yield FindingChange(rule=rule, change="costs-more", before=was, after=now)
        elif now.share.high < was.share.low - _CLEARLY_OTHER_COST:
            yield FindingChange(rule=rule, change="costs-less", before=was, after=now)
    matched = min(len(unmatched_before), len(unmatched_after))
    for gone in unmatched_before[matched:]:
        yield FindingChange(rule=rule, change="vanished", before=gone)
    for new in unmatched_after[matched:]:
        yield FindingChange(rule=rule, change="appeared", after=new)


def _each_once(pairs: list[tuple[Finding, Finding]]) -> list[tuple[Finding, Finding]]:
    """The pairs without those that share a finding with an earlier pair."""
    kept: list[tuple[Finding, Finding]] = []
    for was, now in pairs:
        if all(was is not other and now is not another for other, another in kept):
            kept.append((was, now))
    return kept


# ---------------------------------------------------------------------------------------------
# Possible explanations, and what limits the comparison
# ---------------------------------------------------------------------------------------------


def _fact_changes(before: Side, after: Side) -> Iterator[FactChange]:
    """Facts that differ. A trace contains few facts: one that only one side can know is no difference."""
    befores = {(it.kind, it.name): it.text for it in before.facts}
    afters = {(it.kind, it.name): it.text for it in after.facts}
    for kind, name in {**befores, **afters}:
        was, now = befores.get((kind, name)), afters.get((kind, name))
        comparable = before.kind == after.kind or (was is not None and now is not None)
        if comparable and (was or "") != (now or ""):
            yield FactChange(kind=kind, name=name, before=was or "", after=now or "")


def _warnings(before: Side, after: Side, first: Side, second: Side, judged: _Judged, factor: float) -> Iterator[str]:
    yield from before.doubts
    yield from after.doubts
    if _other_machine(before, after):
        yield "The two sides were measured on different machines: compare their shares, not their absolute times."
    elif any(it.kind == "version" and it.name != "hotlap" for it in _fact_changes(before, after)):
        yield "Versions differ, which may explain part or all of the difference."
    for side in _disturbed(before, after):
        yield (
            f"While {side.path} was timed, other processes used {100 * side.others_share:.0f} % of the script's cores, "
            "which may explain the difference. Measure again on a quiet machine."
        )
    if factor != 1:
        yield (
            f"A step now holds {after.samples_per_step:g} samples instead of {before.samples_per_step:g}; both sides "
            "are shown for as many samples as one step held before."
        )
    yield from _about_steps(first, second, judged)
    if before.kind == after.kind == "study" and before.observed != after.observed:
        blind = before if after.observed else after
        yield (
            f"No evidence was collected for {blind.path}, so some findings could not appear there: a finding that is "
            "only on the other side may be neither new nor fixed."
        )


def _about_steps(first: Side, second: Side, judged: _Judged) -> Iterator[str]:
    change, verdict, spread = judged
    if first.profiled != second.profiled:
        yield (
            "The steps of the trace ran under the profiler, which makes them longer, and the study has no profiled "
            "steps: the two step times cannot be compared."
        )
    elif _other_device(first, second):
        yield "Only one side used an accelerator, so the two step times cannot be compared."
    elif not first.marks_steps:
        yield (
            "Neither trace marks steps (a profiler with a schedule does, at each `profiler.step()`), so whole traces "
            "are compared, which is meaningful only if both hold the same number of steps."
        )
    elif verdict == "not-comparable":
        return
    elif change is None:
        yield "One side has fewer than two steps, so the variation between steps is unknown: no change can be shown."
    elif abs(change.value) <= RUN_SPREAD:
        yield (
            f"Two runs of the same code differ by up to {100 * RUN_SPREAD:.0f} %, so a difference of this size "
            "between two single runs is not evidence of a change."
        )
    elif verdict == "no-clear-change":
        yield _why_unclear(change, spread)
    elif spread > RUN_SPREAD:
        yield (
            "Both sides do the same work equally often, and no wait explains the difference: it may come from the "
            "speed of the machine (clocks, threads, other processes) rather than from the code."
        )


def _why_unclear(change: Estimate, spread: float) -> str:
    if change.low <= 0 <= change.high:
        return "The difference is within the variation between steps of each side."
    if spread > RUN_SPREAD:
        return (
            "Both sides do the same work equally often, and no wait explains the difference. Single profiled runs "
            f"of the same code have differed by up to {100 * spread:.0f} %: profile each side several times."
        )
    return (
        "The steps changed, but the interval overlaps with the "
        f"{100 * spread:.0f} % by which two runs of the same code differ: profile more steps, or each side again."
    )
