"""The parts of a run besides its training steps."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.estimate import Estimate

OutsideKind: TypeAlias = Literal["evaluation", "checkpoints", "other"]


class OutsidePart(Record, frozen=True, kw_only=True):
    """What a script does between training steps, of one kind, seen ``blocks`` times.

    A block takes ``seconds`` and comes every ``every_steps`` steps (None: not known, as it was seen once and at no
    epoch's end). ``at_epoch_ends`` says that it was seen there alone. ``share`` is its part of the run from the first
    step on.
    """

    kind: OutsideKind
    blocks: int
    seconds: float
    every_steps: float | None = None
    at_epoch_ends: bool = False
    share: Estimate


class RunAccount(Record, frozen=True, kw_only=True):
    """The parts of a run besides its steps, as observed over ``steps`` of them.

    ``step_share`` is the steps' part of the run from the first step on, and ``most_speedup`` what the whole run can
    gain at most if steps took no time (None: without bound). ``startup_seconds`` are those up to the end of the first
    step; they count in ``most_speedup``, and ``startup_share`` is known, where the script ran to its own end.
    """

    steps: int
    epoch_steps: int | None = None
    step_seconds: float
    step_share: Estimate
    outside: tuple[OutsidePart, ...] = ()
    startup_seconds: float = 0.0
    startup_share: float | None = None
    most_speedup: float | None = None
