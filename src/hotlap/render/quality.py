"""Sentences on whether results are the same. Only this file distinguishes the kinds of results."""

from __future__ import annotations

from typing import assert_never

from hotlap.records import Parity, Quality, ScoreQuality, TaskQuality
from hotlap.render import text
from hotlap.render.blocks import Tone

_UNKNOWN = "not verified that training still produces the same results"
_NOT_COMPARED = "results not compared"


def quality_phrase(quality: Quality | None) -> str:
    """``no difference found within 0.1 % over 300 steps``, or the phrase for other verdicts and results."""
    match quality:
        case None:
            return _NOT_COMPARED
        case Parity():
            return _of_training(quality)
        case TaskQuality():
            return _of_outputs(quality)
    assert_never(quality)


def quality_question(quality: Quality | None) -> str:
    """The question that :func:`quality_phrase` answers."""
    if quality is None:
        return "Are results the same?"
    return "Are its outputs the same?" if isinstance(quality, TaskQuality) else "Does it train the same?"


def quality_word(quality: Quality | None) -> str:
    """The verdict on results, in a word or two."""
    if quality is None:
        return "unchecked"
    if quality.verdict == "exact":
        return "exact"
    if quality.verdict == "within":
        if isinstance(quality, Parity) and quality.single_steps:
            return "single steps"
        limit = _limit(quality)
        return f"within {text.share(limit)}" if limit is not None else "no difference found"
    return "differ" if quality.verdict == "lost" else "unverified"


def exact_words(quality: Quality) -> str:
    """The meaning of the word "exact"."""
    return f"the {'outputs' if isinstance(quality, TaskQuality) else 'losses'} agree to the last bit"


def score_of(quality: Quality | None) -> ScoreQuality | None:
    """The user's own metric of outputs; None without one."""
    return quality.score if isinstance(quality, TaskQuality) else None


def is_of_tokens(quality: Quality | None) -> bool:
    """Whether generated tokens were compared."""
    return isinstance(quality, TaskQuality) and any(it.of_tokens for it in quality.outputs)


def quality_tone(quality: Quality | None) -> Tone:
    """Whether the verdict on results is good, bad or neither."""
    if quality is None or quality.verdict == "not-verified":
        return "neutral"
    return "bad" if quality.verdict == "lost" else "good"


def quality_details(quality: Quality | None) -> list[str]:
    """The sentences behind :func:`quality_phrase`, without what that contains."""
    if quality is None:
        return []
    if not quality.verified or isinstance(quality, TaskQuality):
        return [text.sentence(quality.text)] if quality.text else []
    found = next((gate.found for gate in quality.gates if gate.gate == "G3" and gate.passed and gate.found), None)
    largest = f"The largest difference of the smoothed loss was {text.share(found)}." if found else ""
    beyond = text.one_line(quality.text).partition(". ")[2]
    return [line for line in (largest, text.sentence(beyond)) if line]


def _of_training(parity: Parity) -> str:
    kind = "single step" if parity.single_steps else "step"
    over = f" over {text.count(parity.steps, kind)}" if parity.steps else ""
    if parity.verdict == "exact":
        return f"losses agree to the last bit{over}"
    if parity.verdict == "within":
        limit = _limit(parity)
        return f"no difference found{f' within {text.share(limit)}' if limit is not None else ''}{over}"
    if parity.verdict == "lost":
        return "but training no longer produces the same results"
    return _UNKNOWN


def _of_outputs(quality: TaskQuality) -> str:
    on = f"on {text.count(quality.inputs, 'input')}"
    if quality.verdict == "exact":
        return f"outputs agree to the last bit {on}"
    if quality.score is not None and quality.verdict in ("within", "lost"):
        return _of_score(quality.score, quality.level, quality.verdict == "within")
    if quality.verdict == "within":
        return f"outputs keep a quality of {quality.level:g} {on}"
    if quality.verdict == "lost":
        return f"but outputs are below a quality of {quality.level:g} {on}"
    return "quality not verified"


def _of_score(score: ScoreQuality, level: float, keeps: bool) -> str:
    on = f"on {text.count(score.samples, 'sample')}"
    name = text.one_line(score.name, limit=80)
    share = f"{score.kept.value:.4g} of {name} {on}, of which {level:g} is required"
    return f"keeps {share}" if keeps else f"but it keeps {share}"


def _limit(quality: Quality) -> float | None:
    """The limit that the trajectory (or else the last gate with a limit) had to keep, as a share."""
    gates = quality.gates if isinstance(quality, Parity) else ()
    limits = {gate.gate: gate.limit for gate in gates if gate.limit is not None and gate.passed}
    return next((limits[it] for it in ("G3", "G5", "G4", "G1") if it in limits), None)
