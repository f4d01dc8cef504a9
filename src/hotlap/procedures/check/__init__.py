"""Whether a script has become slower, and whether it still produces the same results: for continuous integration.

Nothing is compared across machines or days. What a revision or a recorded plan stands for is measured again, here and
now, in the same sets as the present script. ``against.py`` finds what to compare with, ``compare.py`` makes the trials,
``rule.py`` decides, and ``wording.py`` says it.
"""

from hotlap.procedures.check.against import find_against
from hotlap.procedures.check.compare import check

__all__ = ["check", "find_against"]
