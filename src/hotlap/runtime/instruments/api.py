"""How an instrument is installed: what its file is given, and the look into the folder that finds it.

An instrument is a record of :mod:`hotlap.records.instruments`; its tag names the file of this folder whose ``install``
hangs it onto the hooks: ``replay-batch`` is ``replay_batch.py``. Those that only have the session record more are read
by the session itself, and GuardMemory by the controller.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hotlap.records import CaptureGradients, CollectEvidence, GuardMemory, Instrument, Observe
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception
from hotlap.runtime.unit_clock import UnitClock

WITHOUT_A_FILE: Final = (Observe, CollectEvidence, CaptureGradients, GuardMemory)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instrument is hung on. ``finish`` ends the process, with what it found as fields of its report, and
    ``directory`` is the run's."""

    interception: Interception
    clock: UnitClock
    finish: Callable[..., object]
    directory: Path = Path()

    @property
    def hooks(self) -> Hooks:
        return self.interception.hooks


def install(place: Place, instruments: Iterable[Instrument]) -> None:
    """Hang on what is asked for, in that order. Must come before the levers, so that they see the prepared model."""
    for it in instruments:
        if not isinstance(it, WITHOUT_A_FILE):
            module = importlib.import_module(f"hotlap.runtime.instruments.{file_of(it)}")
            module.install(place, it)


def file_of(instrument: Instrument) -> str:
    """The name of its file, by its tag."""
    return str(type(instrument).__struct_config__.tag).replace("-", "_")
