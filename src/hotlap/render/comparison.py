"""What a comparison shows, in words: how much faster, measured how, and whether the numbers are the same."""

from __future__ import annotations

from hotlap.records import ParityComparison, QualityComparison, SpeedComparison
from hotlap.render import text


def ratio_words(speed: SpeedComparison) -> str:
    """``1.83x faster (95 % interval 1.79 to 1.88)``."""
    return (
        f"{text.ratio(speed.speedup.value)} faster ({text.confidence(speed.confidence)} {text.interval(speed.speedup)})"
    )


def how_measured(speed: SpeedComparison) -> str:
    """The evidence behind a ratio: sets, rounds, noise."""
    return (
        f"Measured in {text.count(speed.sets, 'replicate')} of fresh launches with "
        f"{text.count(speed.rounds, 'round')} each. Run-to-run noise is {text.share(speed.noise_floor)}; the "
        f"smallest detectable effect is {text.share(speed.smallest_detectable)}."
    )


def parity_phrase(parity: ParityComparison | None) -> str:
    """``no difference found within 0.1 % over 300 steps``, and its like for the other verdicts."""
    if parity is None:
        return "not verified that training still produces the same results"
    if parity.quality is not None:
        return _quality_phrase(parity, parity.quality)
    over = f" over {text.count(parity.steps, 'step')}" if parity.steps else ""
    if parity.verdict == "exact":
        return f"losses agree to the last bit{over}"
    if parity.verdict == "within":
        limit = parity_limit(parity)
        return f"no difference found{f' within {text.share(limit)}' if limit is not None else ''}{over}"
    if parity.verdict == "lost":
        return "but training no longer produces the same results"
    return "not verified that training still produces the same results"


def _quality_phrase(parity: ParityComparison, quality: QualityComparison) -> str:
    """``outputs agree to the last bit on 8 inputs``, and its like for the other verdicts."""
    on = f"on {text.count(quality.inputs, 'input')}"
    if parity.verdict == "exact":
        return f"outputs agree to the last bit {on}"
    if parity.verdict == "within":
        return f"outputs keep a quality of {quality.level:g} {on}"
    if parity.verdict == "lost":
        return f"but outputs are below a quality of {quality.level:g} {on}"
    return "quality not verified"


def parity_limit(parity: ParityComparison) -> float | None:
    """The limit that the trajectory (or else the last gate with a limit) had to keep, as a share."""
    limits = {gate.gate: gate.limit for gate in parity.gates if gate.limit is not None and gate.passed}
    return limits.get("G3", limits.get("G4", limits.get("G1")))
