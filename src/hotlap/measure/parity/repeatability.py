"""G1: the baseline compared with itself; two runs with the same seed give the run-to-run noise of the losses."""

from __future__ import annotations

from hotlap.measure.parity.losses import difference, percent
from hotlap.records import GateResult, Run

UNREPEATABLE = 0.01
"""With a larger difference between runs of a script, parity cannot detect the bugs it is meant for: a forgotten
zero_grad or a learning rate 5 % too high changes the loss by less."""


def repeatability(baseline: Run, again: Run) -> GateResult:
    """D_AA, and whether it is small enough to judge a lever; ``passed`` is None if it could not be measured."""
    own = difference(baseline, again)
    if own is None:
        return GateResult(gate="G1", passed=None, text="The losses of two baseline runs could not be compared.")
    passed = own <= UNREPEATABLE
    if own == 0:
        text = "Two runs of the baseline have the same losses to the last bit."
    else:
        text = f"Two runs of the baseline with the same seed differ by {percent(own)}."
    return GateResult(gate="G1", passed=passed, found=own, limit=UNREPEATABLE, text=text)
