"""How other programs on the machine disturbed a measurement."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record

Measurement: TypeAlias = Literal["account", "loader-alone", "model-alone", "matmul", "profile", "batch-sizes", "speed"]
"""Which measurement: the time account of the first run, a ceiling, the profiled launch, other batch sizes, or the
replicates of a comparison."""


class Disturbance(Record, frozen=True, kw_only=True):
    """A measurement that could not be made on a quiet machine.

    Other programs kept ``other_load`` of the ``cores`` busy that it could have used. Of the time in which its threads
    were ready to run, they waited ``waited_share`` for a core (None: not reported by the system).
    """

    measured: Measurement
    other_load: float
    cores: int
    waited_share: float | None = None

    @property
    def words(self) -> str:
        """As reports show it: ``others used 1.3 of 2 cores``."""
        return f"others used {self.other_load:.1f} of {self.cores} core{'s' if self.cores != 1 else ''}"
