"""A study of a run that goes on: rows are added while they come, and it is saved now and then and at the end.

Nothing is claimed from one launch: what a plan gave is compared as what it is, a launch at another time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hotlap import __version__, plan
from hotlap.errors import HotlapError, StudyError
from hotlap.gain import comparison_of_plan
from hotlap.machine.facts import machine_facts
from hotlap.machine.label import machine_label
from hotlap.measure.watch.alarms import Alarms
from hotlap.measure.watch.series import RankSeries, point_of, series_of
from hotlap.records import Alarm, Estimate, Plan, Record, Study, StudyStatus, WatchedRun, WatchRow, Workload
from hotlap.study import WATCHES, Journal, create_study, load_study
from hotlap.trial.source import source_of

SAVE_SECONDS = 30.0
_MOST_RANKS = 1024


class WatchOptions(Record, frozen=True, kw_only=True):
    """How the run was watched; stored in the journal. ``plan_path`` is that of the plan, or empty."""

    plan_path: str = ""


class Expected(Record, frozen=True, kw_only=True):
    """What a plan gave: its verified speedup, and the study of that with the baseline's seconds per sample."""

    speedup: Estimate | None = None
    study: str = ""
    baseline_seconds_per_sample: Estimate | None = None
    machine: str = ""


class WatchedStudy:
    """The study of one run, kept in a folder of its own below ``root``; a context manager that closes it.

    Raises :class:`StudyError` when the folder cannot be written, but only at the beginning: later the run is what
    matters, and ``broken`` says what happened.
    """

    def __init__(
        self, root: Path, workload: Workload, applied: Plan, expected: Expected, options: WatchOptions | None = None
    ) -> None:
        self._journal: Journal = create_study(
            root.absolute() / WATCHES,
            workload,
            options or WatchOptions(),
            hotlap_version=__version__,
            source=source_of(workload),
        )
        self.directory = self._journal.directory
        self.broken = ""
        self.ranks: dict[int, RankSeries] = {}
        self.seconds = 0.0
        self._applied = applied
        self._expected = expected
        self._alarms = Alarms()
        self._began: float | None = None
        self._processes = 1
        self._machine = machine_facts()
        self._started = load_study(self.directory)
        self._saved = time.monotonic()

    def add(self, row: WatchRow, *, host_bytes: int | None = None, clock_mhz: float | None = None) -> None:
        """Add one row of one process."""
        if self._began is None:
            self._began = row.at - row.elapsed_seconds
        if row.rank not in self.ranks and len(self.ranks) >= _MOST_RANKS:
            return
        self._processes = max(1, row.processes)
        series = self.ranks.setdefault(row.rank, RankSeries())
        series.add(point_of(row, self._began, host_bytes=host_bytes, clock_mhz=clock_mhz))
        self.seconds = max(self.seconds, row.at - self._began)

    def check(self) -> tuple[Alarm, ...]:
        """Look for what got worse; save when it is time. Return the alarms that hold."""
        self._alarms.check(self.ranks, self.seconds)
        if time.monotonic() - self._saved >= SAVE_SECONDS:
            self._save(self._study("running", "", WatchedRun()))
        return self._alarms.lasting()

    def finish(
        self,
        status: StudyStatus,
        sentence: str,
        *,
        exit_code: int | None = None,
        signal: str = "",
        remarks: Sequence[str] = (),
    ) -> Study:
        """Save the study as it is in the end, and return it."""
        self._alarms.check(self.ranks, self.seconds)
        ended = WatchedRun(exit_code=exit_code, signal=signal, remarks=tuple(remarks))
        study = self._study(status, sentence, ended)
        self._save(study)
        return msgspec.structs.replace(study, directory=str(self.directory))

    def close(self) -> None:
        """Release the study's lock."""
        self._journal.close()

    def _save(self, study: Study) -> None:
        self._saved = time.monotonic()
        try:
            self._journal.save(study)
        except StudyError as error:
            self.broken = error.what

    def _study(self, status: StudyStatus, sentence: str, ended: WatchedRun) -> Study:
        run = self._run(ended)
        return msgspec.structs.replace(
            self._started,
            kind="watch",
            status=status,
            status_text=sentence,
            machine=self._machine,
            spent_seconds=run.seconds,
            plan=self._applied,
            account_before=None if self._applied.settings else run.account,
            watch=run,
            directory="",
        )

    def _run(self, ended: WatchedRun) -> WatchedRun:
        if not self.ranks:
            return msgspec.structs.replace(ended, remarks=(*ended.remarks, "No training step was seen."))
        first = self.ranks[min(self.ranks)]
        account = first.account(self._processes)
        throughput = account.samples_per_step * self._processes / account.wall if account and account.wall else None
        found = msgspec.structs.replace(
            ended,
            seconds=self.seconds,
            steps=first.all_steps,
            timed_steps=first.timed_steps,
            samples_per_second=throughput,
            processes=self._processes,
            account=account,
            series=series_of(first.all_points()),
            alarms=self._alarms.all(),
        )
        return self._compared(found) if self._applied.settings else found

    def _compared(self, run: WatchedRun) -> WatchedRun:
        """The run next to what the plan gave."""
        expected, baseline = self._expected, self._expected.baseline_seconds_per_sample
        found = msgspec.structs.replace(run, expected_speedup=expected.speedup, reference=expected.study)
        here = machine_label(self._machine)
        if baseline is None:
            why = "the study that made the plan was not found, or measured no baseline"
        elif expected.machine != here:
            why = f"the plan was made on another machine ({expected.machine or 'unknown'})"
        elif run.processes > 1:
            why = "the run has several processes"
        elif run.account is None or not run.account.wall:
            why = "the run was too short"
        else:
            rate = run.account.samples_per_step / run.account.wall
            observed = Estimate(
                value=baseline.value * rate, low=baseline.low * rate, high=baseline.high * rate, unit="x"
            )
            return msgspec.structs.replace(found, observed_speedup=observed)
        return msgspec.structs.replace(found, not_compared=why)


def expected_of(path: Path, root: Path) -> Expected:
    """What the plan in that file gave, by its own record and by the study below ``root`` that made it.

    Whatever cannot be read is unknown. Raises :class:`hotlap.errors.PlanError` for a record that makes no sense.
    """
    gain = plan.read_gain(path)
    name = str(plan.read_head(path).get("study", ""))
    made = Expected(
        speedup=gain.speedup if gain is not None else None, machine=gain.machine if gain is not None else ""
    )
    if not name or Path(name).name != name:
        return made
    try:
        study = load_study(root / name) if (root / name).is_dir() else None
    except HotlapError:
        return made
    if study is None or study.plan != plan.read(path):
        return made
    comparison = comparison_of_plan(study)
    return msgspec.structs.replace(
        made,
        study=name,
        machine=machine_label(study.machine),
        baseline_seconds_per_sample=comparison.baseline_seconds_per_sample if comparison is not None else None,
    )
