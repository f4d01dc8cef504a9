"""What a search for the batch size found."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.comparisons import BatchRate

BatchChange: TypeAlias = Literal["loader", "flag"]
BoundBy: TypeAlias = Literal["throughput", "memory", "cap", "data-set", "budget", "failure", ""]


LearningRateRule: TypeAlias = Literal["linear", "square-root", "unknown"]


class GradientNoise(Record, frozen=True, kw_only=True):
    """The gradient noise scale of the script (McCandlish et al. 2018): the batch size, in samples, at which noise and
    signal of a gradient are equally large.

    ``scale`` is an interval of ``confidence`` over ``groups`` groups of gradients, each of ``samples`` samples; its
    ``high`` is infinite, and then None, where the gradients are too noisy for an upper end. ``gradients`` counts all of
    them.
    """

    scale: float | None
    low: float
    high: float | None
    confidence: float
    samples: float
    groups: int
    gradients: int


class BatchAdvice(Record, frozen=True, kw_only=True):
    """What another batch size asks for; advice, which hotlap does not carry out.

    From a batch size of ``own`` to ``size`` the learning rate of ``optimizer`` is scaled by ``factor`` at most, by
    ``rule`` (None: no rule is known for this optimizer). With the measured noise of gradients (None: not measured, and
    ``noise_missing`` says why) the useful factor is ``tempered``, and the same loss takes ``samples_factor`` times as
    many samples.
    """

    own: int
    size: int
    optimizer: str
    learning_rate: float
    rule: LearningRateRule
    factor: float | None = None
    noise: GradientNoise | None = None
    noise_missing: str = ""
    tempered: float | None = None
    samples_factor: float | None = None


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
