"""Whether a script has become slower, and whether it still computes the same: for continuous integration.

Nothing is compared across machines or days. What a revision or a recorded plan stands for is measured again, here and
now, in the same sets as the present script. :mod:`hotlap.check.against` finds what to compare with,
:mod:`hotlap.check.compare` makes the trials, :mod:`hotlap.check.rule` decides, and :mod:`hotlap.check.wording` says it.
"""

from hotlap.check.against import find_against
from hotlap.check.compare import check
from hotlap.check.records import Against, Check, CheckCost, NumbersCheck, PhaseShift, Sides, SpeedCheck

__all__ = [
    "Against",
    "Check",
    "CheckCost",
    "NumbersCheck",
    "PhaseShift",
    "Sides",
    "SpeedCheck",
    "check",
    "find_against",
]
