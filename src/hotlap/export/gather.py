"""Gather what is exported of a study's folder: the study, its replicates, and one run with and without the plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hotlap.records import Plan, Replicate, Run, Study
from hotlap.render.presentable import presentable
from hotlap.study import JOURNAL, TurnAnswer
from hotlap.study.reading import read_journal


@dataclass(frozen=True, slots=True)
class Gathered:
    """``replicates`` are those of all comparisons, in the order in which they ran. ``baseline`` and ``planned`` are
    launches of the verification's last replicate; without one ``baseline`` is the first run of the unmodified
    script."""

    study: Study
    replicates: tuple[Replicate, ...] = ()
    baseline: Run | None = None
    planned: Run | None = None


def gather(study: Study) -> Gathered:
    """Read a study's folder; without a journal only the study itself.

    Raises :class:`hotlap.errors.StudyError` for a damaged journal.
    """
    journal = Path(study.directory) / JOURNAL if study.directory else None
    if journal is None or not journal.is_file():
        return _presentable(study, (), study.baseline, None)
    answers = read_journal(journal).answers.values()
    replicates = tuple(it.answer for it in answers if isinstance(it, TurnAnswer))
    baseline, planned = _verified_runs(study, replicates)
    return _presentable(study, replicates, baseline or study.baseline, planned)


def _presentable(
    study: Study, replicates: tuple[Replicate, ...], baseline: Run | None, planned: Run | None
) -> Gathered:
    directory = study.workload.directory
    return Gathered(
        study=presentable(study, directory),
        replicates=presentable(replicates, directory),
        baseline=presentable(baseline, directory),
        planned=presentable(planned, directory),
    )


def _verified_runs(study: Study, replicates: tuple[Replicate, ...]) -> tuple[Run | None, Run | None]:
    """The launches of the unmodified script and of the verified plan, from the last replicate that begins with these
    arms.

    A verification may also have launched the plan without some of its levers.
    """
    if study.verification is None:
        return None, None
    wanted = study.verification.candidate
    for turns in reversed(replicates):
        plans = [run.plan for run in turns.runs[:3]]
        if plans == [Plan(), Plan(), wanted]:
            return turns.runs[0], turns.runs[2]
    return None, None
