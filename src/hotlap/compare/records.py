"""The two sides of a comparison, and what differs between them. Declarations only; seconds are of a step.

Names of kernels and operators, commands and versions come out of files and are untrusted text.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records import Estimate, Finding, Plan, Record

Table: TypeAlias = Literal["phases", "device", "host", "idle", "kernels", "operators"]
Verdict: TypeAlias = Literal["slower", "faster", "no-clear-change", "not-comparable"]
Reason: TypeAlias = Literal["", "appeared", "vanished", "more-often", "less-often", "slower-each", "faster-each"]
FactKind: TypeAlias = Literal["script", "machine", "version", "setting"]

# ---------------------------------------------------------------------------------------------
# A side
# ---------------------------------------------------------------------------------------------


class Amount(Record, frozen=True, kw_only=True):
    """How long something took in a step, and how often it happened in it (None where that is not counted)."""

    name: str
    seconds: float
    count: float | None = None


class Account(Record, frozen=True, kw_only=True):
    """One table of a side. Rows that take less than ``unknown_below_seconds`` may be missing in it."""

    table: Table
    amounts: tuple[Amount, ...] = ()
    unknown_below_seconds: float = 0.0


class Fact(Record, frozen=True, kw_only=True):
    """Something that may explain a difference and is not a time: a version, a processor, the command."""

    kind: FactKind
    name: str
    text: str


class Side(Record, frozen=True, kw_only=True):
    """One of the two things that are compared.

    ``step_seconds`` are the steps one by one, ``seconds`` their mean; without step marks (``marks_steps`` false) a
    whole trace stands in place of a step. ``profiled`` says that they ran under a profiler, which makes them longer.
    ``traced_seconds`` is the mean profiled step, which the accounts other than ``phases`` belong to (0: no trace).
    ``on_device`` says whether an accelerator worked in the traced steps; None where that is unknown.
    ``others_share`` is the part of the cores that the script sees which others kept busy while the steps were timed (it
    passes 1 where others also use cores that the script does not see). ``observed`` says that evidence was collected
    for the findings.
    """

    path: str
    kind: Literal["trace", "study"]
    title: str = ""
    seconds: float = 0.0
    step_seconds: tuple[float, ...] = ()
    marks_steps: bool = True
    profiled: bool = False
    traced_seconds: float = 0.0
    traced_step_seconds: tuple[float, ...] = ()
    samples_per_step: float | None = None
    on_device: bool | None = None
    others_share: float = 0.0
    accounts: tuple[Account, ...] = ()
    findings: tuple[Finding, ...] = ()
    observed: bool = False
    plan: Plan | None = None
    gain: Estimate | None = None
    facts: tuple[Fact, ...] = ()
    doubts: tuple[str, ...] = ()


# ---------------------------------------------------------------------------------------------
# The difference
# ---------------------------------------------------------------------------------------------


class DiffRow(Record, frozen=True, kw_only=True):
    """One thing before and after, in seconds of a step.

    ``share_of_change`` is its part in the change of the whole step; None where that did not change clearly. Rows of
    ``phases``, ``device`` and ``host`` are disjoint and add up to it; kernels may run side by side. ``reason`` is what
    mostly changed: that it is there at all, how often it happens in a step, or how long it takes each time.
    """

    name: str
    before_seconds: float
    after_seconds: float
    change_seconds: float
    share_of_change: float | None = None
    before_count: float | None = None
    after_count: float | None = None
    reason: Reason = ""


class DiffTable(Record, frozen=True, kw_only=True):
    """Rows by the size of their change. ``rows_left_out`` are further ones, which changed least."""

    table: Table
    rows: tuple[DiffRow, ...]
    rows_left_out: int = 0


class FindingChange(Record, frozen=True, kw_only=True):
    """A finding that is on one side only, or whose cost surely changed."""

    rule: str
    change: Literal["appeared", "vanished", "costs-more", "costs-less"]
    before: Finding | None = None
    after: Finding | None = None


class FactChange(Record, frozen=True, kw_only=True):
    """A fact that differs; empty where a side does not tell it."""

    kind: FactKind
    name: str
    before: str
    after: str


class SideSummary(Record, frozen=True, kw_only=True):
    """What a side was, without its accounts."""

    path: str
    kind: Literal["trace", "study"]
    title: str
    steps: int
    profiled: bool
    plan: Plan | None = None
    gain: Estimate | None = None


class Difference(Record, frozen=True, kw_only=True):
    """What differs between two sides, the first one being ``before``.

    ``step`` is the step as a whole, for as many samples as one held before, or the whole trace where a trace marks no
    steps (``per``). ``change`` is its relative change with an interval that knows only how the steps within each side
    vary. ``traced_step`` is the profiled step that ``device``, ``idle``, ``kernels``, ``host`` and ``operators`` belong
    to; it is ``step`` itself where both sides are traces.
    """

    before: SideSummary
    after: SideSummary
    per: Literal["step", "trace"]
    verdict: Verdict
    step: DiffRow
    change: Estimate | None = None
    traced_step: DiffRow | None = None
    tables: tuple[DiffTable, ...] = ()
    findings: tuple[FindingChange, ...] = ()
    facts: tuple[FactChange, ...] = ()
    warnings: tuple[str, ...] = ()
