"""The phases of a step: the one table that all code that times, stores, compares or shows phases reads.

A new phase is one row of :data:`PHASES` (and its key in :data:`StepPhase`), and the mark in :mod:`hotlap.runtime.clock`
that records its seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

StepPhase: TypeAlias = Literal["data_wait", "host_to_device", "forward", "backward", "optimizer", "other"]

Phase: TypeAlias = Literal[StepPhase, "outside"]
"""Those of a step, and the time between two steps."""


class PhaseRow(NamedTuple):
    """``title`` names the phase in a table, ``letter`` in a bar of letters, ``work`` as what takes time, ``during`` as
    when something happened, and ``contents`` says what its seconds include."""

    title: str
    letter: str
    work: str
    during: str
    contents: str


PHASES: Final[Mapping[Phase, PhaseRow]] = MappingProxyType(
    {
        "data_wait": PhaseRow(
            "data wait", "D", "waiting for data", "while a batch was fetched", "waiting for the batch"
        ),
        "host_to_device": PhaseRow(
            "host-to-device", "H", "copying batches to the device", "while a batch was copied", "copying to the device"
        ),
        "forward": PhaseRow("forward", "F", "the forward pass", "in the forward pass", "forward pass"),
        "backward": PhaseRow("backward", "B", "the backward pass", "in the backward pass", "backward pass"),
        "optimizer": PhaseRow("optimizer", "O", "the optimizer", "in the optimizer", "optimizer"),
        "other": PhaseRow(
            "other",
            ".",
            "the script's own work between the phases",
            "in the loop's own code",
            "all else within the step",
        ),
        "outside": PhaseRow(
            "outside",
            "-",
            "evaluation, checkpoints and the like",
            "outside the step",
            "evaluation, checkpoints and the like, on top of the step",
        ),
    }
)

STEP_PHASES: Final[tuple[StepPhase, ...]] = tuple(it for it in PHASES if it != "outside")
"""The phases that add up to a step, in the order in which a step goes through them; ``other`` is the last."""
