"""G4 for levers that change an evaluation: the held-out losses that the script computed.

Evaluations of two runs are compared if they came after equally many steps. The limit is 0.1 %, or three times the
baseline's own difference if that is more.
"""

from __future__ import annotations

from hotlap.measure.parity.losses import percent
from hotlap.records import GateResult, Run

SMALLEST_LIMIT = 0.001
_TIMES_OWN = 3.0


def held_out(baseline: Run, candidate: Run, again: Run | None) -> GateResult:
    """Compare the evaluations of two runs; ``again`` is the baseline once more, which can only widen the limit."""
    found = _largest_difference(baseline, candidate)
    if found is None:
        text = (
            "No evaluation with a loss of torch was seen in both runs, so what the script evaluates could not be "
            "compared."
        )
        return GateResult(gate="G4", passed=None, text=text)
    own = _largest_difference(baseline, again) if again is not None else None
    limit = max(SMALLEST_LIMIT, _TIMES_OWN * (own or 0.0))
    text = f"The largest difference of a held-out loss is {percent(found)}, and {percent(limit)} is allowed."
    if found <= limit:
        return GateResult(gate="G4", passed=True, found=found, limit=limit, text=text)
    return GateResult(gate="G4", passed=None if again is None else False, found=found, limit=limit, text=text)


def _largest_difference(one: Run, other: Run) -> float | None:
    """As a share; None without evaluations to compare."""
    theirs = {it.step: it for it in other.evaluations}
    pairs = [(it.loss, theirs[it.step].loss) for it in one.evaluations if it.step in theirs]
    return max((abs(b - a) / max(abs(a), 1e-12) for a, b in pairs), default=None)
