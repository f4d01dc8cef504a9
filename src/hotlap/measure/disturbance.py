"""What else the machine did while blocks were timed: the remarks that go with a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import fmean

from hotlap.records import Block, Run

NOTABLE_LOAD = 0.05
"""In cores."""

NOTABLE_CLOCK_SPREAD = 0.05


def disturbances(runs: Iterable[Run]) -> tuple[str, ...]:
    """Sentences on the load by others, throttling and the device's clock during all timed blocks (warm-up excepted);
    none when the machine was quiet."""
    blocks = [block for run in runs for block in run.blocks[run.warm_up_blocks :]]
    if not blocks:
        return ()
    return tuple(text for text in (_load(blocks), _throttling(blocks), _clock(blocks)) if text)


def _load(blocks: list[Block]) -> str:
    mean = fmean(block.other_load for block in blocks)
    highest = max(block.other_load for block in blocks)
    if mean < NOTABLE_LOAD:
        return ""
    return f"Others kept {mean:.1f} processor cores busy on average while it was timed, {highest:.1f} at most."


def _throttling(blocks: list[Block]) -> str:
    reasons = Counter(block.throttled for block in blocks if block.throttled)
    if not reasons:
        return ""
    named = ", ".join(reason for reason, _ in reasons.most_common(3))
    return f"The device slowed itself down in {reasons.total()} of {len(blocks)} blocks ({named})."


def _clock(blocks: list[Block]) -> str:
    clocks = [block.device_clock_mhz for block in blocks if block.device_clock_mhz]
    if not clocks or max(clocks) - min(clocks) < NOTABLE_CLOCK_SPREAD * max(clocks):
        return ""
    return f"The device's clock moved between {min(clocks):.0f} and {max(clocks):.0f} MHz."
