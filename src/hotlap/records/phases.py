"""The phases of a step, and what they are called: the one table from which whatever names a phase takes its words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

StepPhase: TypeAlias = Literal["data_wait", "host_to_device", "forward", "backward", "optimizer", "other"]
STEP_PHASES: Final[tuple[StepPhase, ...]] = get_args(StepPhase)
"""The phases that add up to a step, in their order."""

Phase: TypeAlias = Literal[StepPhase, "outside"]
"""Those, and what lies between two steps."""


class PhaseWords(NamedTuple):
    """A phase in a table (``title``), as what takes time (``work``), and as when something happened (``during``)."""

    title: str
    work: str
    during: str


PHASE_WORDS: Final[Mapping[Phase, PhaseWords]] = MappingProxyType(
    {
        "data_wait": PhaseWords("data wait", "waiting for data", "while a batch was fetched"),
        "host_to_device": PhaseWords("host-to-device", "copying batches to the device", "while a batch was copied"),
        "forward": PhaseWords("forward", "the forward pass", "in the forward pass"),
        "backward": PhaseWords("backward", "the backward pass", "in the backward pass"),
        "optimizer": PhaseWords("optimizer", "the optimizer", "in the optimizer"),
        "other": PhaseWords("other", "the script's own work between the phases", "in the loop's own code"),
        "outside": PhaseWords("outside", "evaluation, checkpoints and the like", "outside the step"),
    }
)
