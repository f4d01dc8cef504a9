"""The two sides of a comparison, and how they differ. Declarations only; seconds are per step.

Names of kernels and operators, commands and versions are read from files and are untrusted text.
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
    """Seconds and occurrences per step; ``count`` is None if occurrences are not counted."""

    name: str
    seconds: float
    count: float | None = None


class Account(Record, frozen=True, kw_only=True):
    """One table of a side. Rows shorter than ``unknown_below_seconds`` may be missing."""

    table: Table
    amounts: tuple[Amount, ...] = ()
    unknown_below_seconds: float = 0.0


class Fact(Record, frozen=True, kw_only=True):
    """A possible explanation other than a time: a version, a processor, the command."""

    kind: FactKind
    name: str
    text: str


class Side(Record, frozen=True, kw_only=True):
    """One side of a comparison.

    ``step_seconds`` are the steps one by one, ``seconds`` their mean; without step marks (``marks_steps`` false) they
    are those of a whole trace. ``profiled`` says whether the steps ran under a profiler, which makes them longer.
    ``traced_seconds`` is the mean profiled step, to which all accounts but ``phases`` belong (0: no trace).
    ``on_device`` says whether the traced steps used an accelerator; None if that is unknown. ``others_share`` is how
    much of the script's cores other processes kept busy while the steps were timed (above 1 if they also used cores
    that the script cannot use). ``observed`` says whether evidence for findings was collected.
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
    """One row of a table before and after, in seconds per step.

    ``share_of_change`` is its share of the change of the whole step; None if the step did not clearly change. Rows of
    ``phases``, ``device`` and ``host`` are disjoint and add up to that change; kernels may overlap. ``reason`` is what
    mostly changed: whether it happens at all, how often per step, or how long it takes each time.
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
    """Rows by the size of their change, without the ``rows_left_out`` that changed least."""

    table: Table
    rows: tuple[DiffRow, ...]
    rows_left_out: int = 0


class FindingChange(Record, frozen=True, kw_only=True):
    """A finding that is on one side only, or whose cost changed by more than its interval."""

    rule: str
    change: Literal["appeared", "vanished", "costs-more", "costs-less"]
    before: Finding | None = None
    after: Finding | None = None


class FactChange(Record, frozen=True, kw_only=True):
    """A fact that differs; empty on a side that does not contain it."""

    kind: FactKind
    name: str
    before: str
    after: str


class SideSummary(Record, frozen=True, kw_only=True):
    """A side without its accounts."""

    path: str
    kind: Literal["trace", "study"]
    title: str
    steps: int
    profiled: bool
    plan: Plan | None = None
    gain: Estimate | None = None


class Difference(Record, frozen=True, kw_only=True):
    """How two sides differ; the first one is ``before``.

    ``step`` is the whole step, for as many samples as one held before, or the whole trace if the traces mark no steps
    (``per``). ``change`` is its relative change; the interval covers only the variation between steps within each side.
    ``traced_step`` is the profiled step to which ``device``, ``idle``, ``kernels``, ``host`` and ``operators`` belong;
    it is ``step`` itself if both sides are traces.
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
