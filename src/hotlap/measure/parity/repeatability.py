"""G1: the baseline against itself. What two runs with the same seed differ by, no lever can be blamed for."""

from __future__ import annotations

from hotlap.measure.parity.losses import difference, percent
from hotlap.records import GateResult, Run

UNREPEATABLE = 0.01
"""A script whose own runs differ by more than this cannot show the bugs that parity is there to find: a forgotten
zero_grad or a learning rate 5 % too high moves the loss by less."""


def repeatability(baseline: Run, again: Run) -> GateResult:
    """D_AA, and whether it is small enough to judge a lever by; ``passed`` is None when it could not be measured."""
    own = difference(baseline, again)
    if own is None:
        return GateResult(gate="G1", passed=None, text="The losses of two baseline runs could not be compared.")
    passed = own <= UNREPEATABLE
    if own == 0:
        text = "Two runs of the baseline have the same losses to the last bit."
    else:
        text = f"Two runs of the baseline with the same seed differ by {percent(own)}."
    return GateResult(gate="G1", passed=passed, found=own, limit=UNREPEATABLE, text=text)
