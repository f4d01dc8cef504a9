"""All studies of a project, reduced to what can be compared over time; unreadable ones are listed with the reason."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from hotlap.errors import StudyError
from hotlap.gain import claimed_speedup, comparison_of_plan
from hotlap.machine.label import machine_label
from hotlap.records import (
    Against,
    Check,
    CheckVerdict,
    Comparison,
    Estimate,
    QualityVerdict,
    Record,
    Source,
    SpeedVerdict,
    Study,
    StudyKind,
    StudyStatus,
    Workload,
)
from hotlap.study import FOLDERS, attachment_of, command_of, load_study, studies_in
from hotlap.study.layout import CHECK


class Entry(Record, frozen=True, kw_only=True):
    """One study. ``sort`` is the command that made it, without ``hotlap``.

    ``speedup`` is that of its plan over the unmodified script, with an interval of ``confidence``; it is a claim only
    if ``claimed``. ``levers`` are those of the plan. ``findings`` counts the causes that were found,
    and ``dearest_share`` is the largest share that one of them costs. Of a check ``speedup`` is that of the present
    script against the other side, ``check`` the answer, ``against`` the other side, and ``noise_floor`` the half-width
    of the interval of that side against itself, as a share.
    """

    directory: str
    identifier: str
    sort: str
    kind: StudyKind = "search"
    started: str
    status: StudyStatus
    workload: Workload
    source: Source = Source()
    speedup: Estimate | None = None
    confidence: float = 0.0
    verdict: SpeedVerdict | None = None
    baseline_agrees: bool = True
    noise_floor: float = 0.0
    claimed: bool = False
    quality: QualityVerdict | None = None
    check: CheckVerdict | None = None
    against: Against | None = None
    levers: tuple[str, ...] = ()
    findings: int = 0
    dearest_share: Estimate | None = None
    step_seconds: float | None = None
    spent_seconds: float = 0.0
    torch_version: str = ""
    machine: str = ""
    hotlap_version: str = ""


class Unreadable(Record, frozen=True, kw_only=True):
    """A study that could not be read, with the reason."""

    directory: str
    problem: str


class TrendPoint(Record, frozen=True, kw_only=True):
    """One check that measured a speed.

    ``speedup`` is that of the present script against the other side. ``since_first`` is its speed against the other
    side of the trend's first check: the same ratio where both checks have that side in common, and a product of ratios
    where each check's other side is the commit that an earlier one checked; None where neither is known.
    """

    started: str
    directory: str
    verdict: CheckVerdict
    commit: str = ""
    modified: bool = False
    against_commit: str = ""
    speedup: Estimate
    noise_floor: float
    confidence: float
    since_first: Estimate | None = None


class Trend(Record, frozen=True, kw_only=True):
    """Checks of one command against one name (a revision, or a plan) on one machine with one torch, oldest first."""

    workload: Workload
    against: str
    machine: str = ""
    torch_version: str = ""
    points: tuple[TrendPoint, ...]


class History(Record, frozen=True, kw_only=True):
    """All studies of a project, the oldest first, and the trends of its checks."""

    root: str
    entries: tuple[Entry, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    trends: tuple[Trend, ...] = ()


def history_of(root: Path) -> History:
    """The studies in ``root`` and in its folders for labs, profiles and checks.

    Raises :class:`StudyError` if there is none, or if a folder cannot be listed.
    """
    entries: list[Entry] = []
    unreadable: list[Unreadable] = []
    for directory in _directories(root):
        try:
            entries.append(_entry(load_study(directory)))
        except StudyError as error:
            unreadable.append(Unreadable(directory=str(directory), problem=error.what))
    if not entries and not unreadable:
        raise StudyError(f"There is no study under {root}.", remedy="`hotlap tune train.py` makes one.")
    entries.sort(key=lambda it: (it.started, it.identifier))
    return History(root=str(root), entries=tuple(entries), unreadable=tuple(unreadable), trends=trends_of(entries))


def trends_of(entries: Sequence[Entry]) -> tuple[Trend, ...]:
    """The checks that measured a speed and can be compared with each other; a single one has no trend."""
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for it in entries:
        if it.check is not None and it.speedup is not None and it.against is not None and _is_ratio(it.speedup):
            command = (it.workload.kind, it.workload.target, it.workload.arguments)
            key = (*command, it.against.kind, it.against.name, it.machine, it.torch_version)
            groups.setdefault(key, []).append(it)
    return tuple(_trend(it) for it in groups.values() if len(it) > 1)


def _trend(checks: Sequence[Entry]) -> Trend:
    points: list[TrendPoint] = []
    for it in checks:
        assert it.check is not None and it.speedup is not None and it.against is not None
        point = TrendPoint(
            started=it.started,
            directory=it.directory,
            verdict=it.check,
            commit=it.source.git_revision,
            modified=it.source.git_modified is not False,
            against_commit=it.against.commit,
            speedup=it.speedup,
            noise_floor=it.noise_floor,
            confidence=it.confidence,
        )
        points.append(msgspec.structs.replace(point, since_first=_since_first(points, point)))
    last = checks[-1]
    return Trend(
        workload=last.workload,
        against=last.against.name if last.against is not None else "",
        machine=last.machine,
        torch_version=last.torch_version,
        points=tuple(points),
    )


def _since_first(earlier: Sequence[TrendPoint], point: TrendPoint) -> Estimate | None:
    if not earlier or point.against_commit == earlier[0].against_commit:
        return point.speedup
    for it in reversed(earlier):
        same = it.commit == point.against_commit and not it.modified and it.confidence == point.confidence
        if same and it.since_first is not None:
            return _product(it.since_first, point.speedup)
    return None


def _product(first: Estimate, second: Estimate) -> Estimate:
    """The product of two ratios that were measured independently; the variances of their logarithms add up."""
    value = first.value * second.value
    above = math.hypot(math.log(first.high / first.value), math.log(second.high / second.value))
    below = math.hypot(math.log(first.value / first.low), math.log(second.value / second.low))
    return Estimate(value=value, low=value / math.exp(below), high=value * math.exp(above), unit=second.unit)


def _is_ratio(of: Estimate) -> bool:
    return 1e-3 < of.low <= of.value <= of.high < 1e3


def _directories(root: Path) -> Iterator[Path]:
    for folder in (root, *(root / it for it in FOLDERS)):
        yield from studies_in(folder)


def _entry(study: Study) -> Entry:
    comparison = comparison_of_plan(study)
    costly = [it.share for it in study.findings if it.kind == "cost"]
    entry = Entry(
        directory=study.directory,
        identifier=study.identifier,
        sort=command_of(study),
        kind=study.kind,
        started=study.started,
        status=study.status,
        workload=study.workload,
        source=study.source,
        check=study.check_verdict,
        against=_against(study),
        levers=tuple(it.lever for it in study.plan.settings),
        findings=len(study.findings),
        dearest_share=next(iter(costly), None),  # findings are stored in their order
        step_seconds=study.account_before.wall if study.account_before is not None else None,
        spent_seconds=study.spent_seconds,
        torch_version=dict(study.machine.library_versions).get("torch", ""),
        machine=machine_label(study.machine),
        hotlap_version=study.hotlap_version,
    )
    if comparison is None:
        return entry
    return msgspec.structs.replace(_with_speed(entry, comparison), claimed=claimed_speedup(study) is not None)


def _against(study: Study) -> Against | None:
    kept = attachment_of(Path(study.directory), CHECK, Check) if study.check_verdict is not None else None
    return kept.against if kept is not None else None


def _with_speed(entry: Entry, comparison: Comparison) -> Entry:
    found = comparison.speed
    return msgspec.structs.replace(
        entry,
        speedup=found.speedup,
        confidence=found.confidence,
        verdict=found.verdict,
        baseline_agrees=found.baseline_agrees,
        noise_floor=found.noise_floor,
        quality=comparison.quality.verdict if comparison.quality is not None else None,
    )
