"""``hotlap run --watch``: the script runs next to this process, which watches it and keeps a study of the run."""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from hotlap import api
from hotlap.cli import screen
from hotlap.cli.status_line import StatusLine, status_of
from hotlap.errors import HotlapError
from hotlap.export.live_scalars import LiveScalars
from hotlap.export.metrics_endpoint import MetricsEndpoint
from hotlap.export.openmetrics import exposition
from hotlap.measure.watch.series import point_of
from hotlap.procedures.watch import Expected, WatchedStudy, WatchOptions, expected_of
from hotlap.records import Plan, StudyStatus, Workload
from hotlap.trial.beside import HowItEnded, Rows, resident_bytes, run_beside
from hotlap.trial.load import device_of

TICK_SECONDS = 1.0


def run_watched(
    workload: Workload, environment: dict[str, str], folder: Path, applied: Plan, choices: argparse.Namespace
) -> HowItEnded:
    """Run the script to its end and say how it ended.

    Raises :class:`HotlapError` before the script is started; what fails later ends the watching and not the script.
    """
    expected = expected_of(choices.plan, api.STUDIES) if applied.settings else Expected()
    options = WatchOptions(plan_path=str(choices.plan) if applied.settings else "")
    study = WatchedStudy(api.STUDIES, workload, applied, expected, options)
    try:
        with ExitStack() as parts:
            watch = _Watch(study, folder, environment, choices, parts)
            ended = run_beside(workload, environment, folder, watch.tick, TICK_SECONDS)
            watch.look()
        _finish(study, watch.rows.missed, ended)
    finally:
        study.close()
    return ended


class _Watch:
    """Reads rows and passes them on: to the study, the status line, the endpoint and TensorBoard."""

    def __init__(
        self,
        study: WatchedStudy,
        folder: Path,
        environment: dict[str, str],
        choices: argparse.Namespace,
        parts: ExitStack,
    ) -> None:
        self.rows = Rows(folder)
        self._study = study
        self._device = device_of(environment)
        self._steps: dict[int, int] = {}
        self._scalars: LiveScalars | None = None
        self._endpoint: MetricsEndpoint | None = None
        # Neither is worth a run: what cannot be had is said, and the script starts.
        try:
            if choices.tensorboard is not None:
                self._scalars = parts.enter_context(LiveScalars(choices.tensorboard, study.directory.name))
        except HotlapError as error:
            screen.complain(error)
        try:
            if choices.metrics_port is not None:
                self._endpoint = parts.enter_context(MetricsEndpoint(choices.metrics_port))
                screen.note(f"metrics: {self._endpoint.url}")
        except HotlapError as error:
            screen.complain(error)
        self._line = parts.enter_context(StatusLine())

    def look(self) -> None:
        """Take the rows that have come since the last look."""
        clock = self._device.clock_mhz()
        if clock is None:
            clock = _processor_mhz()
        for row in self.rows.fresh():
            host = resident_bytes(row.process)
            self._study.add(row, host_bytes=host, clock_mhz=clock)
            self._steps[row.rank] = self._steps.get(row.rank, 0) + row.steps
            if self._scalars is not None:
                point = point_of(row, 0.0, host_bytes=host, clock_mhz=clock)
                self._scalars.add(row.rank, self._steps[row.rank], time.time(), point)

    def tick(self) -> None:
        """Look, check, and show."""
        self.look()
        alarms = self._study.check()
        self._line.show(status_of(self._study.ranks, alarms))
        if self._endpoint is not None:
            self._endpoint.text = exposition(self._study.ranks, alarms)


def _finish(study: WatchedStudy, missed: int, ended: HowItEnded) -> None:
    remarks = [f"{missed} rows were missed: the watching process could not read them in time."] if missed else []
    status: StudyStatus = "interrupted" if ended.signal_number is not None else "finished"
    how = f"with exit code {ended.exit_code}" if ended.signal_number is None else f"by {ended.signal_name}"
    made = study.finish(
        status, f"The script ended {how}.", exit_code=ended.exit_code, signal=ended.signal_name, remarks=remarks
    )
    if study.broken:
        screen.note(f"the study of the run could not be saved: {study.broken}", style="yellow")
    elif screen.redraws(screen.err()):
        alarms = made.watch.alarms if made.watch is not None else ()
        for it in alarms:
            screen.note(f"alarm: {it.text}", style="yellow")
        screen.note(f"`hotlap report {made.directory}` shows the run")


def _processor_mhz() -> float | None:
    """The mean clock of the processor's cores; None where the system does not report it."""
    try:
        found = psutil.cpu_freq()
    except (OSError, NotImplementedError, RuntimeError):
        return None
    return float(found.current) if found is not None and found.current else None
