"""A check: whether the present script is slower than another, or produces other results."""

from __future__ import annotations

from hotlap.history import Entry
from hotlap.records import CheckVerdict, Study
from hotlap.render import text
from hotlap.render.blocks import Tone
from hotlap.render.comparison import how_measured
from hotlap.render.kinds.api import Headline


def headline(study: Study) -> Headline:
    """The answer of a check, whose sentences are the study's."""
    if study.check_verdict is None:
        return Headline("neutral", "Not finished: the check gave no answer.")
    tones: dict[CheckVerdict, Tone] = {"passed": "good", "failed": "bad", "inconclusive": "neutral"}
    details = [text.sentence(study.status_text)]
    if study.verification is not None:
        details.append(how_measured(study.verification.speed))
    return Headline(tones[study.check_verdict], f"hotlap check: {study.check_verdict}.", tuple(details))


def what_was_done(study: Study) -> str:
    """How the figures were obtained."""
    script = text.one_line(study.workload.target, limit=120)
    return (
        f"hotlap ran {script} in its current and its earlier version, or with and without a plan, in fresh "
        "launches that took turns, to see whether it became slower and whether training still produces the "
        "same results."
    )


def sides(study: Study) -> tuple[str, str]:
    """The earlier script or that without the plan, and the present one or that with the plan."""
    return "before", "now"


def result(entry: Entry) -> str:
    """``failed, 0.87x the speed (0.84 to 0.90)``."""
    if entry.check is None:
        return entry.status.replace("-", " ")
    if entry.speedup is None:
        return entry.check
    return f"{entry.check}, {text.ratio(entry.speedup.value)} the speed ({text.interval(entry.speedup)})"
