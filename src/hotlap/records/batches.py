"""What a search for the batch size found."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.comparisons import BatchRate

BatchChange: TypeAlias = Literal["loader", "flag"]
BoundBy: TypeAlias = Literal["throughput", "memory", "cap", "data-set", "budget", "failure", ""]


class BatchSearch(Record, frozen=True, kw_only=True):
    """The whole script, its loader included, at each batch size that was tried; the smallest size comes first.

    The size is changed where the script makes its DataLoader, or by its option ``flag``. ``own`` is the batch size of
    the unmodified script, ``knee`` the smallest whose throughput is within ``tolerance`` (a share) of the best one
    measured (0: none was measured), and ``bound_by`` what ended the search for larger ones. ``largest_fitting`` is the
    largest that ran with ``headroom`` (a share of ``memory_bytes``, the device's or else this machine's) to spare.
    ``obstacle`` says why no size could be tried, and what to do. ``launches`` counts those of the script.
    """

    changed_by: BatchChange = "loader"
    flag: str = ""
    own: int = 0
    rates: tuple[BatchRate, ...] = ()
    knee: int = 0
    bound_by: BoundBy = ""
    tolerance: float = 0.03
    largest_fitting: int = 0
    headroom: float = 0.1
    memory_bytes: int = 0
    obstacle: str = ""
    launches: int = 0

    def rate_of(self, size: int) -> BatchRate | None:
        """What was measured at a batch size; None where it was not tried."""
        return next((it for it in self.rates if it.batch_size == size), None)
