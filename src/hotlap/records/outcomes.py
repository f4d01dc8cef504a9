"""The outcomes of levers, and the causes of slowness that were found."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.comparisons import Comparison
from hotlap.records.estimate import Estimate
from hotlap.records.numbers import BadNumber
from hotlap.records.objective import SECONDS_PER_SAMPLE
from hotlap.records.runs import CompileReport, Ending, Stopped
from hotlap.records.script import CallSite
from hotlap.records.workload import Setting, Workload


class Kept(Record, frozen=True, kw_only=True, tag="kept"):
    """Better by the objective, with the same results: it became part of the plan.

    ``comparison`` is that of the whole plan where the lever's own gain was not compared; ``first_ratio`` is then how
    many times faster a first measurement showed it, one replicate (None: there was none).
    """

    comparison: Comparison
    reason: str = ""
    first_ratio: float | None = None


class NoGain(Record, frozen=True, kw_only=True, tag="no-gain"):
    """Not shown to be better by ``metric``; ``comparison`` is None where the screening was enough."""

    comparison: Comparison | None = None
    metric: str = SECONDS_PER_SAMPLE
    reason: str = ""


class QualityLost(Record, frozen=True, kw_only=True, tag="quality-lost"):
    """Results are no longer the same: the losses of training, or the outputs of a model. ``comparison`` is None where
    that was known before it was compared; ``speedup`` is then how many times faster a single replicate showed it."""

    comparison: Comparison | None = None
    speedup: float | None = None
    reason: str = ""


class NotVerified(Record, frozen=True, kw_only=True, tag="not-verified"):
    """Better, but it could not be shown that results are still the same. ``comparison`` is None where that was known
    before it was compared; ``speedup`` is then how many times faster a single replicate showed it."""

    comparison: Comparison | None = None
    speedup: float | None = None
    reason: str = ""


class Failed(Record, frozen=True, kw_only=True, tag="failed"):
    """The trial ended in an error; ``ending`` shows it."""

    ending: Ending
    reason: str = ""


class Seen(Record, frozen=True, kw_only=True, tag="seen"):
    """Screened but not proved, because time was short or only a screening was requested. ``speedup`` is how many times
    better ``metric`` was in a single replicate of ``rounds`` rounds: it supports no claim. ``within_launch`` is its
    interval over the rounds, where a process switched the lever; launches of its own may differ by more than their
    rounds do. ``bound`` is the largest speedup that the step's own times allow, where they show one: of a ``speedup``
    above it noise is a part, and no more than the bound is shown."""

    speedup: float
    metric: str = SECONDS_PER_SAMPLE
    rounds: int
    within_launch: Estimate | None = None
    bound: float | None = None
    reason: str = ""


class Skipped(Record, frozen=True, kw_only=True, tag="skipped"):
    """Not tried, and why."""

    reason: str
    bound: float | None = None
    already: bool = False


Verdict: TypeAlias = Kept | NoGain | QualityLost | NotVerified | Failed | Seen | Skipped


class Outcome(Record, frozen=True, kw_only=True):
    """The outcome of one lever (``setting`` is the best values found, where any were tried).

    ``together_with`` are the other levers of the move that it was tried in.
    """

    lever: str
    setting: Setting | None = None
    verdict: Verdict
    together_with: tuple[str, ...] = ()
    compile: CompileReport | None = None
    trial_seconds: float = 0.0


FindingKind: TypeAlias = Literal["cost", "wrong-numbers", "risk", "hint"]


class Finding(Record, frozen=True, kw_only=True):
    """A cause of slowness with its evidence.

    ``share`` is what it costs, as a share of the step (0 where it costs no time). ``kind`` is a ``cost``,
    ``wrong-numbers``, a ``risk`` that has done no harm yet, or a ``hint`` whose gain is unknown. ``title`` is one
    sentence with its number, ``evidence`` the figures it rests on, ``remedy`` what to do, ``site`` the line, and
    ``levers`` those that remove the cause. ``causes`` are the rules that found why: their evidence, remedy and levers
    are among its own. ``disturbed``: its times were measured while other programs kept the machine busy and may have
    caused the cost.
    """

    rule: str
    share: Estimate
    title: str
    kind: FindingKind = "cost"
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    site: CallSite | None = None
    levers: tuple[str, ...] = ()
    disturbed: bool = False
    causes: tuple[str, ...] = ()


class NumbersHunt(Record, frozen=True, kw_only=True):
    """What ``hotlap nan`` found: one run that watches losses, gradients and weights, and where it noticed something,
    one that checks every operation.

    ``finite_steps`` counts the steps of the first run in which everything was finite, and ``losses_read`` those of them
    whose loss could be read. ``repeated`` is what the last run, which checked every operation from ``checked_from`` on,
    found within ``repeated_steps`` steps. ``compiled`` says that the script compiles; the repeated run did not.
    """

    workload: Workload
    seed: int = 0
    finite_steps: int = 0
    losses_read: int = 0
    ending: Ending = Stopped()
    noticed: BadNumber | None = None
    repeated: BadNumber | None = None
    repeated_steps: int = 0
    repeated_ending: Ending = Stopped()
    checked_from: int = 0
    compiled: bool = False
    wall_seconds: float = 0.0
