"""What a candidate needs of memory, against its baseline.

As everywhere the set is the replicate: each gives one peak an arm, and intervals are Student's over the logarithms of
their ratios. A caching allocator asks for the same blocks in the same order, so that a device's peak hardly varies; the
host's does, with whatever else a process has loaded by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from hotlap.measure.levels import geometric
from hotlap.records import Estimate, MemoryKind, PeakComparison, PeakVerdict, Run, TurnSet

DELTA = 0.02
"""The smallest change of a peak that counts, as a share: allocators round up, and libraries load on demand."""

_PEAK_OF: Mapping[MemoryKind, Callable[[Run], int]] = MappingProxyType(
    {"device": lambda run: run.device_peak_bytes, "host": lambda run: run.host_peak_bytes}
)


def compare_peaks(
    sets: Sequence[TurnSet], *, confidence: float, delta: float = DELTA, arms: tuple[int, int, int] = (0, 1, 2)
) -> tuple[PeakComparison, ...]:
    """The peaks of the arm ``arms[2]`` against those of ``arms[0]``, with ``arms[1]`` as the latter's repeat: of the
    device, and of the host. Nothing of a memory whose peak is not known, and nothing with fewer than two sets.

    ``delta`` is the smallest change that counts, as a share. Where the repeat differs from the baseline by more than
    that, no difference is claimed.
    """
    return tuple(_comparisons(sets, delta, confidence, arms))


def _comparisons(
    sets: Sequence[TurnSet], delta: float, confidence: float, arms: tuple[int, int, int]
) -> Iterator[PeakComparison]:
    for kind, peak_of in _PEAK_OF.items():
        rows = [[peak_of(it.runs[arm]) for arm in arms] for it in sets]
        if len(rows) < 2 or not all(all(row) for row in rows):
            continue
        baseline, repeat, candidate = ([math.log(row[arm]) for row in rows] for arm in range(3))
        ratio = geometric(_differences(baseline, candidate), "x", confidence)
        own = geometric(_differences(baseline, repeat), "x", confidence)
        yield PeakComparison(
            memory=kind,
            baseline_bytes=geometric(baseline, "B", confidence),
            candidate_bytes=geometric(candidate, "B", confidence),
            ratio=ratio,
            verdict=_verdict(ratio, delta) if _lies_within(own, delta) else "inconclusive",
            sets=len(rows),
            confidence=confidence,
        )


def _differences(baseline: Sequence[float], other: Sequence[float]) -> list[float]:
    return [b - a for a, b in zip(baseline, other, strict=True)]


def _verdict(ratio: Estimate, delta: float) -> PeakVerdict:
    """As of speeds: a difference is claimed where the interval leaves out 1 and the estimate counts; none, where the
    whole interval is smaller than what counts."""
    if ratio.high < 1 and ratio.value <= 1 / (1 + delta):
        return "less"
    if ratio.low > 1 and ratio.value >= 1 + delta:
        return "more"
    return "no-effect" if _is_small(ratio, delta) else "inconclusive"


def _is_small(ratio: Estimate, delta: float) -> bool:
    return 1 / (1 + delta) < ratio.low and ratio.high < 1 + delta


def _lies_within(own: Estimate, delta: float) -> bool:
    """Whether the baseline agrees with itself: its interval reaches into the band of differences that do not count."""
    return own.low < 1 + delta and own.high > 1 / (1 + delta)
