"""What is known of a run that was watched while it went on (``hotlap run --watch``)."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.comparisons import PhaseAccount
from hotlap.records.estimate import Estimate
from hotlap.records.phases import StepPhase

WATCH_SUFFIX: Final = ".rows"
WATCH_ROWS: Final = 64
WATCH_ROW_BYTES: Final = 640
"""A process that trains keeps its last ``WATCH_ROWS`` rows in the file ``PID.rows``: that of number n is JSON, with
spaces up to ``WATCH_ROW_BYTES``, at the place n modulo ``WATCH_ROWS``."""

AlarmKind: TypeAlias = Literal[
    "data-wait-grows", "step-slows", "memory-creeps", "loss-scale-sinks", "steps-skipped", "rank-slows", "clock-slows"
]


class WatchRow(Record, frozen=True, kw_only=True):
    """About a second of one training process, as it reports it itself.

    ``number`` counts its rows from 1, and ``at`` is the system's monotonic clock at the end, in seconds. ``steps``
    ended within ``elapsed_seconds``; ``timed_steps`` of them were timed by phase, over ``wall_seconds`` and with
    ``samples``. ``phases`` are the seconds of those steps, in the order of the table of phases. ``loss`` and
    ``loss_scale`` are the last values that were known without waiting for the device (None: none), ``scaled_steps`` how
    often a GradScaler updated its scale, ``skipped_steps`` how many of those steps it is known to have skipped, and
    ``device_bytes`` what tensors held.
    """

    number: int
    process: int
    rank: int = 0
    processes: int = 1
    at: float = 0.0
    elapsed_seconds: float = 0.0
    steps: int = 0
    timed_steps: int = 0
    wall_seconds: float = 0.0
    phases: tuple[float, ...] = ()
    samples: int = 0
    loss: float | None = None
    loss_scale: float | None = None
    scaled_steps: int = 0
    skipped_steps: int = 0
    device_bytes: int = 0


class WatchedSeries(Record, frozen=True, kw_only=True):
    """The run over time, as columns of equal length; a row is ``elapsed_seconds`` that end ``at_seconds`` after the
    first row began.

    ``step_seconds`` and ``phases`` are means per step of those that were timed. ``skipped_steps`` are those that a
    GradScaler skipped of its ``scaled_steps``. ``host_bytes`` is the resident memory
    of the training processes of this machine, ``device_bytes`` that of tensors on a device (the largest of all ranks),
    and ``clock_mhz`` the clock of the device, or without one of the processor. None: not known.
    """

    at_seconds: tuple[float, ...] = ()
    elapsed_seconds: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()
    step_seconds: tuple[float | None, ...] = ()
    phases: tuple[tuple[StepPhase, tuple[float | None, ...]], ...] = ()
    loss: tuple[float | None, ...] = ()
    loss_scale: tuple[float | None, ...] = ()
    scaled_steps: tuple[int, ...] = ()
    skipped_steps: tuple[int, ...] = ()
    host_bytes: tuple[int | None, ...] = ()
    device_bytes: tuple[int | None, ...] = ()
    clock_mhz: tuple[float | None, ...] = ()


class Alarm(Record, frozen=True, kw_only=True):
    """Something that got worse while the script ran: when it was first seen, and whether it lasted until the end."""

    kind: AlarmKind
    text: str
    at_seconds: float
    lasted: bool = True


class WatchedRun(Record, frozen=True, kw_only=True):
    """A run that was watched; ``steps`` and ``samples_per_second`` are those of all of its ``processes`` that train.

    ``account`` is the mean of the ``timed_steps`` that came after the warm-up. ``exit_code`` is None while it runs, and
    where it is not known; ``signal`` names the one that ended it. ``expected_speedup`` is what the plan gave when it
    was verified. ``observed_speedup`` is this run against the unmodified script of the study ``reference``: one launch
    at another time, so its interval is that of the study's baseline alone, and ``not_compared`` says why there is none.
    """

    seconds: float = 0.0
    steps: int = 0
    timed_steps: int = 0
    samples_per_second: float | None = None
    processes: int = 0
    account: PhaseAccount | None = None
    series: WatchedSeries = WatchedSeries()
    alarms: tuple[Alarm, ...] = ()
    exit_code: int | None = None
    signal: str = ""
    expected_speedup: Estimate | None = None
    observed_speedup: Estimate | None = None
    reference: str = ""
    not_compared: str = ""
    remarks: tuple[str, ...] = ()
