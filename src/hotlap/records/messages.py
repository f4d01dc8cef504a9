"""The messages between a child and its controller: one JSON object per line, over a local socket."""

from __future__ import annotations

from typing import Final, TypeAlias

from hotlap.records.base import Record
from hotlap.records.runs import Block, Run

STEP_COUNTER_PREFIX: Final = "steps-done-"
"""Every process that trains keeps the number of its steps in a file of the run's folder, named this and its number: an
unsigned integer of ``STEP_COUNTER_BYTES`` bytes, in the machine's own order."""

STEP_COUNTER_BYTES: Final = 8

CONNECTION_LOST: Final = 117
"""The exit status of a process that lost its connection to the controller: a trial never continues without it."""


class Arrived(Record, frozen=True, kw_only=True, tag="arrived"):
    """Child: the first training step on a device is about to begin; waiting to continue. Sent at most once by every
    process, and only where the assignment says to wait there."""

    process: int


class Hello(Record, frozen=True, kw_only=True, tag="hello"):
    """Child: the first training step is done; waiting. Sent once by every process that trains; ``startup_seconds`` are
    those since torch was imported."""

    process: int
    rank: int = 0
    processes: int = 1
    startup_seconds: float = 0.0


class BlockDone(Record, frozen=True, kw_only=True, tag="block-done"):
    """Child: the requested steps are done; waiting again."""

    block: Block
    steps_done: int


class Report(Record, frozen=True, kw_only=True, tag="report"):
    """Child: the report, which is the last message. The controller adds to ``run`` what only it knows (ending, wall and
    startup seconds, output). ``exit_code`` is None when hotlap ended the script."""

    run: Run
    exit_code: int | None = None


class Proceed(Record, frozen=True, kw_only=True, tag="proceed"):
    """Controller: do ``lead_in`` steps that do not count, then ``steps`` steps as one block. To a child that has
    :class:`Arrived`: continue.

    Before the first of these steps the process switches to ``configuration`` of its :class:`SwitchLevers`; None: it
    stays in the present one. ``seconds`` ends the block early, once that time has passed and ``minimum_steps`` are
    done; it is never used with several processes, whose blocks must end at the same step. ``most_seconds`` ends it too,
    however few steps are done.
    """

    steps: int
    lead_in: int = 0
    configuration: int | None = None
    seconds: float | None = None
    minimum_steps: int = 1
    most_seconds: float | None = None


class End(Record, frozen=True, kw_only=True, tag="end"):
    """Controller: send the report and end the process at once, even if the script is not finished."""


FromChild: TypeAlias = Arrived | Hello | BlockDone | Report
ToChild: TypeAlias = Proceed | End
