"""What a check compared, and what it found."""

from __future__ import annotations

from typing import Final, Literal

from hotlap.records.base import Record
from hotlap.records.comparisons import RecordedGain, SpeedComparison
from hotlap.records.disturbance import Disturbance
from hotlap.records.estimate import Estimate
from hotlap.records.phases import StepPhase
from hotlap.records.quality import Quality
from hotlap.records.study import CheckVerdict
from hotlap.records.workload import Plan, Workload


class Against(Record, frozen=True, kw_only=True):
    """What the present script is compared with.

    ``revision``: the script at a git commit, both under ``plan``. ``plan``: the present script without the plan; the
    gain that was ``recorded`` with the plan must still hold. ``name`` is the name that the user gave, ``commit`` the
    commit, and ``plan_name`` where the plan came from (empty: no plan).
    """

    kind: Literal["revision", "plan"]
    name: str
    commit: str = ""
    plan: Plan = Plan()
    plan_name: str = ""
    recorded: RecordedGain | None = None


class Sides(Record, frozen=True, kw_only=True):
    """The two sides that take turns in the same replicates."""

    before: Workload
    before_plan: Plan = Plan()
    now: Workload
    now_plan: Plan = Plan()


class PhaseShift(Record, frozen=True, kw_only=True):
    """How much longer a phase takes on the present side (less than 0: shorter), as a share of the step before.

    ``before_share`` is its share of that step; the interval is over replicates.
    """

    phase: StepPhase
    before_share: float
    change: Estimate
    confidence: float

    @property
    def moved(self) -> bool:
        """Whether the interval excludes 0, and the change is large enough to be reported."""
        return (self.change.low > 0 or self.change.high < 0) and abs(self.change.value) >= SMALLEST_SHIFT


SMALLEST_SHIFT: Final = 0.01
"""A phase that changed by less than this share of the step is not reported."""


class CheckCost(Record, frozen=True, kw_only=True):
    """The expected duration of a check, from its start to the first and to the last interim analysis."""

    least_seconds: float
    most_seconds: float


class SpeedCheck(Record, frozen=True, kw_only=True):
    """How fast the present side is.

    ``comparison`` is the present side against the other one, as measured. ``judged`` is the ratio that the verdict is
    about, with an interval of the same confidence: the speedup itself, or where a recorded gain must still hold,
    today's speedup as a share of it. ``at_least`` is the end of the one-sided interval that a pass rests on. The script
    is slower when all of ``judged`` lies below 1 and its value at or below ``limit``; it passes when ``at_least`` lies
    above ``limit``. ``phases`` says which parts of a step changed.
    """

    verdict: CheckVerdict
    text: str
    limit: float
    judged: Estimate | None = None
    at_least: float | None = None
    comparison: SpeedComparison | None = None
    phases: tuple[PhaseShift, ...] = ()


class NumbersCheck(Record, frozen=True, kw_only=True):
    """Whether training still produces the same results."""

    verdict: CheckVerdict
    text: str
    quality: Quality | None = None


class Check(Record, frozen=True, kw_only=True):
    """The answer: ``failed`` when either part failed, else ``inconclusive`` when either is, else ``passed``.

    ``numbers`` is None where only the speed was checked, or where the script failed before. ``delta`` is the smallest
    slowdown that counts, as a share. ``cost`` is the expected duration (None: unknown when the check ended), and
    ``disturbances`` lists the measurements that other programs disturbed. ``directory`` is the study's folder (empty:
    none is kept).
    """

    verdict: CheckVerdict
    text: str
    workload: Workload
    against: Against
    speed: SpeedCheck
    numbers: NumbersCheck | None = None
    delta: float
    machine: str = ""
    torch_version: str = ""
    before_peak_bytes: int = 0
    now_peak_bytes: int = 0
    spent_seconds: float = 0.0
    budget_seconds: float | None = None
    cost: CheckCost | None = None
    disturbances: tuple[Disturbance, ...] = ()
    warnings: tuple[str, ...] = ()
    directory: str = ""
