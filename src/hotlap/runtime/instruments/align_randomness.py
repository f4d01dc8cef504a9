"""Compiled code draws the random numbers that eager code draws, and workers those that the training process would.

What may not change from step to step is then recorded too: that is the session's (:mod:`hotlap.runtime.invariants`).
"""

from __future__ import annotations

from hotlap.records import AlignRandomness
from hotlap.runtime.aligned_fetches import align
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: AlignRandomness) -> None:
    """Whatever compiles later finds the switch set, and whatever is fetched later is aligned."""
    import torch._inductor.config as inductor

    inductor.fallback_random = True
    align(place)
