"""Check in CI whether a script has become slower or its results differ.

Nothing is compared across machines or days. The revision or recorded plan is measured again, in the same replicates as
the current script. ``against.py`` finds what to compare with, ``compare.py`` makes the trials,
``rule.py`` decides, and ``wording.py`` words the answer.
"""

from hotlap.procedures.check.against import find_against
from hotlap.procedures.check.compare import check

__all__ = ["check", "find_against"]
