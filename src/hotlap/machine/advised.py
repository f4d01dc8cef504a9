"""The record in which rules report a problem of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["problem", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing about the machine: ``problem`` (training fails or wastes most of the machine), ``warning`` (it is
    slower than necessary, or measurements are disturbed) or ``note`` (good to know). ``remedy`` says what to do."""

    level: Level
    text: str
    remedy: str
