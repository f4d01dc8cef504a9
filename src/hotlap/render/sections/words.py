"""A glossary for readers without knowledge of hotlap."""

from __future__ import annotations

from hotlap.render.blocks import Fact
from hotlap.render.calls import are_calls
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
        "program differ",
    ),
)
_OF_TRAINING = (
    Fact("exact", "the losses agree to the last bit"),
    Fact("within 0.1 %", "the smoothed losses of two runs from the same seed and batches never differ by more"),
    Fact(
        "single steps",
        "steps from the same weights have the same losses and change them alike; rounding alone drives longer runs "
        "apart",
    ),
    Fact("not verified", "identical results could not be shown, for instance because the loss could not be read"),
    Fact("at most, bound", "the most that could be gained, not a promise"),
)
_OF_CALLS = (
    Fact("exact", "the outputs agree to the last bit"),
    Fact("quality", "the smallest cosine or agreement of outputs with those of the model in float32, or your metric"),
    Fact("agreement", "the share of decisions, such as the largest logit or the nearest neighbour, that are the same"),
    Fact("not verified", "no quality is claimed, for instance because the weights were drawn at random"),
    Fact("p50, p90, p99", "the time that half of the calls, 90 % and 99 % of them do not exceed"),
    Fact("Pareto", "no other candidate is at least as good in every respect and better in one"),
)


def page(material: Material) -> Section[PageBlock]:
    """Always there."""
    own = _OF_CALLS if are_calls(material.study) else _OF_TRAINING
    return Section("What the words mean", (Pairs((*_WORDS, *own)),))
