"""Check whether a script became slower, and still produces the same results: for continuous integration.

Nothing is compared across machines or days. A revision or a recorded plan is measured again, on this machine, in the
same replicates as the present script. ``against.py`` finds what to compare with, ``compare.py`` makes the trials,
``rule.py`` decides, and ``wording.py`` phrases the answer.
"""

from hotlap.procedures.check.against import find_against
from hotlap.procedures.check.compare import check

__all__ = ["check", "find_against"]
