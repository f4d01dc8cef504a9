"""A comparison in words: how much faster, and how it was measured."""

from __future__ import annotations

from hotlap.records import SpeedComparison
from hotlap.render import text


def ratio_words(speed: SpeedComparison) -> str:
    """``1.83x faster (95 % interval 1.79 to 1.88)``."""
    return (
        f"{text.ratio(speed.speedup.value)} faster ({text.confidence(speed.confidence)} {text.interval(speed.speedup)})"
    )


def how_measured(speed: SpeedComparison) -> str:
    """Describe the evidence for a ratio: replicates, rounds, noise."""
    return (
        f"Measured in {text.count(speed.replicates, 'replicate')} of fresh launches with "
        f"{text.count(speed.rounds, 'round')} each. Run-to-run noise is {text.share(speed.noise_floor)}; the "
        f"smallest detectable effect is {text.share(speed.smallest_detectable)}."
    )
