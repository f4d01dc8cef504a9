"""The study in progress: every change makes a new frozen Study, which is saved and reported at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from hotlap.experiment.plan_ahead import Forecast, PlanAhead
from hotlap.experiment.repeat import repetitions_text
from hotlap.experiment.trials import Trials
from hotlap.measure.disturbance import disturbance_text
from hotlap.records import (
    Disturbance,
    Estimate,
    Kept,
    Measurement,
    Outcome,
    Plan,
    Progress,
    Record,
    Run,
    Stage,
    Study,
    StudyStatus,
)
from hotlap.study import Journal, RecordType

OnProgress: TypeAlias = Callable[[Progress], None]


def say_nothing(progress: Progress) -> None:
    """Ignore progress."""


class StudyDraft:
    """The current Study, which is a valid answer at any moment."""

    def __init__(self, study: Study, trials: Trials, journal: Journal | None, on_progress: OnProgress) -> None:
        self.study = study
        self._trials = trials
        self._journal = journal
        self._on_progress = on_progress
        self._rank: dict[str, int] = {}
        self._repetitions_text = ""
        self._disturbances_text = ""
        self._plan = PlanAhead()
        self._first_gains: dict[str, tuple[float, Plan]] = {}
        trials.on_repetition = self._note_repetitions

    def rank(self, levers: Iterable[str]) -> None:
        """The order of outcomes: best bound first."""
        for name in levers:
            self._rank.setdefault(name, len(self._rank))

    def note_first_gain(self, lever: str, incumbent: Plan, gain: float) -> None:
        """Note what the lever's best setting showed in its first measurement on top of that plan."""
        self._first_gains[lever] = gain, incumbent

    def first_gain_of(self, lever: str) -> tuple[float, Plan] | None:
        """The last first measurement of a lever, and the plan that it was on top of; None if there was none."""
        return self._first_gains.get(lever)

    def update(self, **fields: Any) -> None:
        """Change fields of the study and save it."""
        trials = self._trials
        self.study = msgspec.structs.replace(
            self.study, spent_seconds=trials.spent_seconds, hosts=trials.hosts, **fields
        )
        if self._journal is not None:
            self._journal.save(self.study)

    def warn(self, *texts: str) -> None:
        """Add sentences to the study's warnings, without repetitions."""
        new = [it for it in dict.fromkeys(texts) if it not in self.study.warnings]
        if new:
            self.update(warnings=(*self.study.warnings, *new))

    def _note_repetitions(self, count: int) -> None:
        others = [it for it in self.study.warnings if it != self._repetitions_text]
        self._repetitions_text = repetitions_text(count)
        self.update(warnings=(*others, self._repetitions_text))

    def disturbed(self, measured: Measurement, found: Disturbance | None) -> None:
        """Replace the disturbance of a measurement (None: undisturbed). One warning names all disturbed ones."""
        disturbances = [it for it in self.study.disturbances if it.measured != measured]
        disturbances += [found] if found is not None else []
        warnings = [it for it in self.study.warnings if it != self._disturbances_text]
        self._disturbances_text = disturbance_text(disturbances) if disturbances else ""
        warnings += [self._disturbances_text] if disturbances else []
        if tuple(disturbances) != self.study.disturbances:
            self.update(disturbances=tuple(disturbances), warnings=tuple(warnings))

    def judge(self, measured: Measurement, runs: Iterable[Run]) -> None:
        """Note whether other processes disturbed these runs."""
        self.disturbed(measured, self._trials.disturbance(measured, runs))

    def attach(self, name: str, record: Record) -> None:
        """Store a record next to the study, if it has a folder."""
        if self._journal is not None:
            self._journal.attach(name, record)

    def attachment(self, name: str, kind: type[RecordType]) -> RecordType | None:
        """The record stored under that name, also by the run that this one resumes."""
        return self._journal.attachment(name, kind) if self._journal is not None else None

    def decide(self, outcome: Outcome, stage: Stage = "trial", **fields: Any) -> None:
        """Replace the outcome of a lever and notify the listener; ``fields`` change in the same save."""
        self.note(outcome, **fields)
        self.report(stage, _sentence(outcome), lever=outcome.lever, outcome=outcome)

    def note(self, outcome: Outcome, **fields: Any) -> None:
        """The same without notifying the listener."""
        others = [it for it in self.study.outcomes if it.lever != outcome.lever]
        outcomes = sorted([*others, outcome], key=lambda it: self._rank.get(it.lever, len(self._rank)))
        self.update(outcomes=tuple(outcomes), **fields)

    def decide_all(self, outcomes: Sequence[Outcome], **fields: Any) -> None:
        """The same for several levers, in one change of the study."""
        names = {it.lever for it in outcomes}
        others = [it for it in self.study.outcomes if it.lever not in names]
        ranked = sorted([*others, *outcomes], key=lambda it: self._rank.get(it.lever, len(self._rank)))
        self.update(outcomes=tuple(ranked), **fields)
        for it in outcomes:
            self.report("trial", _sentence(it), lever=it.lever, outcome=it)

    def outcome_of(self, lever: str) -> Outcome | None:
        """The outcome of a lever so far."""
        return next((it for it in self.study.outcomes if it.lever == lever), None)

    def close(self, status: StudyStatus, text: str = "") -> None:
        """Close the study, and report what its plan came to if there was one."""
        self.update(status=status, status_text=text)
        came_to = self._plan.outcome(self._trials.launches, self._trials.spent_seconds)
        if came_to:
            self.report("end", came_to)

    def plan_ahead(self, stage: Stage, expected: Forecast) -> None:
        """Plan launches and seconds from here on.

        The listener is notified of the first plan, and of one that differs much from what was said.
        """
        trials = self._trials
        said = self._plan.revise(
            expected,
            launches=trials.launches,
            spent_seconds=trials.spent_seconds,
            budget_seconds=trials.options.budget_seconds,
        )
        if said:
            self.report(stage, said)

    def report(self, stage: Stage, text: str, **more: Any) -> None:
        """Notify the listener."""
        self._on_progress(
            Progress(
                stage=stage,
                text=text,
                best=self.best(),
                launches=self._trials.launches,
                launches_planned=self._plan.launches,
                seconds_planned=self._plan.seconds or 0.0,
                spent_seconds=self._trials.spent_seconds,
                budget_seconds=self._trials.options.budget_seconds,
                **more,
            )
        )

    def best(self) -> Estimate | None:
        """The speedup of the plan so far: that of its verification, else the product of the kept levers' gains.

        Lower and upper ends are multiplied too, so that the interval is wider than necessary.
        """
        if self.study.verification is not None:
            return self.study.verification.speed.speedup
        value = low = high = 1.0
        found = False
        for outcome in self.study.outcomes:
            if isinstance(outcome.verdict, Kept):
                gain = outcome.verdict.comparison.speed.speedup
                value, low, high, found = value * gain.value, low * gain.low, high * gain.high, True
        return Estimate(value=value, low=low, high=high, unit="x") if found else None


def _sentence(outcome: Outcome) -> str:
    reason = getattr(outcome.verdict, "reason", "")
    return f"{outcome.lever}: {reason}" if reason else outcome.lever
