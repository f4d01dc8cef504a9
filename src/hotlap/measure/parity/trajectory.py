"""G3: the loss over some 300 steps, from the same weights and batches.

Pairing by seed makes this thirty times tighter than a comparison of runs with different seeds: within 0.1 % is a
healthy change of rounding, and not a bug.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.measure.parity.losses import FEWEST_STEPS, PairedLosses, difference, distance, pair, percent
from hotlap.records import Completed, Crashed, GateResult, Run

FLOOR = 0.001
BAND = 3
WIDEST_LIMIT = 0.05
"""Above this limit the script's own randomness hides what a lever may break."""


def trajectory(
    baseline: Run, candidate: Run, *, again: Run | None, nudged: Sequence[Run] = (), reseeded: Run | None = None
) -> GateResult:
    """Require the candidate's losses to be within max(0.1 %, 3 D_AA, 3 D_1ulp, 3 D_reseeded) of the baseline's.

    ``again`` is a repeat of the baseline, ``nudged`` are runs of the baseline with its initial weights changed by one
    ulp, of which the most distant counts, ``reseeded`` is the baseline with other random numbers if those of
    augmentation cannot be aligned. A run that is missing does not widen the limit.
    ``passed`` is None with too few losses, and if the limit is too wide to be meaningful, unless losses keep the
    smallest one.
    """
    paired = pair(baseline, candidate)
    broken = _broken(baseline, candidate, paired)
    if broken is not None:
        return broken
    own, rounding = _largest(baseline, again, reseeded), _largest(baseline, *nudged)
    limit = limit_of(baseline, again, reseeded, *nudged)
    return _unless_hidden(paired, limit, rounding if rounding > own else 0.0)


def limit_of(baseline: Run, *others: Run | None) -> float:
    """The limit of a change of rounding, as these other runs of the unmodified script widen it."""
    return max(FLOOR, BAND * _largest(baseline, *others))


def _largest(baseline: Run, *others: Run | None) -> float:
    """The largest difference between the baseline and these runs; 0 if none can be compared."""
    return max((difference(baseline, it) or 0.0 for it in others if it is not None), default=0.0)


def exact_trajectory(baseline: Run, candidate: Run, *, again: Run, noisy: bool = False) -> GateResult:
    """Require bitwise identical losses, or losses within 3 D_AA if the baseline's own differ.

    ``noisy`` says that the script's own noise explains differences (see :mod:`.noise`): then the limit is that of a
    change of rounding, max(0.1 %, 3 D_AA), and the gate stays open above 5 % unless losses are within 0.1 %.
    """
    paired = pair(baseline, candidate)
    broken = _broken(baseline, candidate, paired)
    if broken is not None:
        return broken
    if paired.equal:
        text = f"The losses of {paired.steps} steps are identical to the last bit."
        return GateResult(gate="G3", passed=True, found=0.0, limit=0.0, text=text)
    limit = max(FLOOR if noisy else 0.0, BAND * (difference(baseline, again) or 0.0))
    return _unless_hidden(paired, limit)


def _unless_hidden(paired: PairedLosses, limit: float, rounding: float = 0.0) -> GateResult:
    """Whether losses are within the limit; open if it is so wide that a fault would pass.

    What keeps the smallest limit needs no wider one, however much the script amplifies: such a script would amplify a
    fault too. ``rounding`` is by how much a change of rounding alone moves the losses, if that is why.
    """
    result = _within(paired, limit)
    if not result.passed or limit <= WIDEST_LIMIT:
        return result
    least = _within(paired, FLOOR)
    if least.passed:
        return least
    text = f"The script's run-to-run noise ({percent(limit)}) is too large to detect a fault."
    if rounding:
        text = (
            f"Rounding alone changes the losses too much to detect a fault: by {percent(rounding)}, where the initial "
            "weights differ by one unit in the last place."
        )
    return GateResult(gate="G3", passed=None, found=result.found, limit=limit, text=text)


def _within(paired: PairedLosses, limit: float) -> GateResult:
    found = distance(paired)
    passed = found is not None and found <= limit
    size = "without measure" if found is None else f"by {percent(found)}"
    text = f"The losses of {paired.steps} steps differ {size}; the limit is {percent(limit)}."
    return GateResult(gate="G3", passed=passed, found=found, limit=limit, text=text)


def _broken(baseline: Run, candidate: Run, paired: PairedLosses) -> GateResult | None:
    """The result if no comparison is needed (training broke) or possible; None if it is possible."""
    if paired.not_finite:
        return _lost(f"At step {paired.not_finite[0] + 1} the loss is no longer finite; the baseline's is.")
    if isinstance(candidate.ending, Crashed) and not isinstance(baseline.ending, Crashed):
        return _lost(f"The script fails after {len(candidate.steps.loss)} steps: {candidate.ending.error[:200]}")
    if not paired.steps:
        return _open("No loss could be read in both runs.")
    if paired.unread:
        return _lost(f"At step {paired.unread[0] + 1} the loss cannot be read; the baseline's can.")
    if _ended_elsewhere(baseline, candidate):
        ours, theirs = len(baseline.steps.loss), len(candidate.steps.loss)
        return _lost(f"The script ends after a different number of steps: {ours} without the lever, {theirs} with it.")
    if paired.steps < FEWEST_STEPS:
        return _open(f"Only {paired.steps} losses could be compared; at least {FEWEST_STEPS} are needed.")
    return None


def _ended_elsewhere(baseline: Run, candidate: Run) -> bool:
    """Whether one run reached the script's own end at a step where the other did not.

    A gradient scaler skips updates; if steps are counted by updates, as many may be missing.
    """
    ours, theirs = len(baseline.steps.loss), len(candidate.steps.loss)
    slack = abs(candidate.scaler_skipped_steps - baseline.scaler_skipped_steps)
    too_early = isinstance(candidate.ending, Completed) and theirs < ours - slack
    too_late = isinstance(baseline.ending, Completed) and theirs > ours + slack
    return too_early or too_late


def _lost(text: str) -> GateResult:
    return GateResult(gate="G3", passed=False, text=text)


def _open(text: str) -> GateResult:
    return GateResult(gate="G3", passed=None, text=text)
