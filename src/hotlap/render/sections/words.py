"""A glossary for readers without knowledge of hotlap."""

from __future__ import annotations

from hotlap.render.blocks import Fact
from hotlap.render.html.parts import PageBlock, Pairs
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 95

_WORDS = (
    Fact("faster", "the whole interval is faster, and the estimate is at least the smallest gain worth having"),
    Fact("no effect", "the whole interval is closer to no change than the smallest gain worth having"),
    Fact("inconclusive", "neither could be shown on this machine"),
    Fact(
        "interval",
        "the range of the true ratio, at the level shown next to it, over fresh launches, since launches of the same "
        "script differ",
    ),
    Fact("exact", "the losses agree to the last bit"),
    Fact("within 0.1 %", "the smoothed losses of two runs from the same seed and batches never differ by more"),
    Fact("not verified", "identical results could not be shown, for instance because the loss could not be read"),
    Fact("at most, bound", "the most that could be gained, not a promise"),
)


def page(material: Material) -> Section[PageBlock]:
    """Always there."""
    return Section("What the words mean", (Pairs(_WORDS),))
