"""Sentences for a study whose objective is not only speed."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.objective import gain, inverse, judge, metric_of
from hotlap.records import SECONDS_PER_SAMPLE, Comparison, Objective
from hotlap.render import text
from hotlap.wording import metric_words


def gain_words(objective: Objective, comparison: Comparison, *, of: str = "script") -> str:
    """``Peak memory 0.52x of the script's (95 % interval 0.51 to 0.53), time per sample 1.08x``; empty if the
    metric is unknown. ``of`` names what was run."""
    found = gain(objective, comparison)
    if found is None:
        return ""
    ratio, confidence = inverse(found), comparison.speed.confidence
    words = metric_words(objective.metric).capitalize()
    interval = f"{text.confidence(confidence)} {text.interval(ratio)}"
    first = f"{words} {text.ratio(ratio.value)} of the {of}'s ({interval})"
    return ", ".join([first, *_others(objective, comparison)])


def limit_words(objective: Objective) -> str:
    """``time per sample at most 1.1x``, for each limit; empty without any."""
    return text.listed([f"{metric_words(it.metric)} at most {it.most:g}x of the script's" for it in objective.limits])


def not_better(objective: Objective, comparison: Comparison) -> str:
    """Why a plan is not claimed to be better, in one sentence."""
    judgement = judge(objective, comparison)
    measured = gain_words(objective, comparison) or f"{metric_words(objective.metric).capitalize()} is not known"
    if judgement.metric_verdict == "better":
        return f"No gain within the limits ({limit_words(objective)}). {measured}."
    if judgement.metric_verdict == "inconclusive":
        return f"Inconclusive: fresh launches could not confirm a gain. {measured}."
    return f"No gain. {measured}."


def _others(objective: Objective, comparison: Comparison) -> Iterator[str]:
    """The cost of the gain: the limited metrics, and always the time."""
    names = dict.fromkeys([*(it.metric for it in objective.limits), SECONDS_PER_SAMPLE])
    for name in names:
        found = metric_of(comparison, name) if name != objective.metric else None
        if found is not None:
            yield f"{metric_words(name)} {text.ratio(found.ratio.value)} ({text.interval(found.ratio)})"
