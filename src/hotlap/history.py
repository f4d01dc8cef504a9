"""All studies of a project, reduced to what can be compared over time; unreadable ones are listed with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from hotlap.errors import StudyError
from hotlap.gain import claimed_speedup, comparison_of_plan
from hotlap.machine.label import machine_label
from hotlap.records import (
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
from hotlap.study import FOLDERS, command_of, load_study, studies_in


class Entry(Record, frozen=True, kw_only=True):
    """One study. ``sort`` is the command that made it, without ``hotlap``.

    ``speedup`` is that of its plan over the unmodified script, with an interval of ``confidence``; it is a claim only
    if ``claimed``. ``levers`` are those of the plan. ``findings`` counts the causes that were found,
    and ``dearest_share`` is the largest share that one of them costs. Of a check ``speedup`` is that of the present
    script against the other side, and ``check`` the answer.
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
    claimed: bool = False
    quality: QualityVerdict | None = None
    check: CheckVerdict | None = None
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


class History(Record, frozen=True, kw_only=True):
    """All studies of a project, the oldest first."""

    root: str
    entries: tuple[Entry, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


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
    return History(root=str(root), entries=tuple(entries), unreadable=tuple(unreadable))


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


def _with_speed(entry: Entry, comparison: Comparison) -> Entry:
    found = comparison.speed
    return msgspec.structs.replace(
        entry,
        speedup=found.speedup,
        confidence=found.confidence,
        verdict=found.verdict,
        baseline_agrees=found.baseline_agrees,
        quality=comparison.quality.verdict if comparison.quality is not None else None,
    )
