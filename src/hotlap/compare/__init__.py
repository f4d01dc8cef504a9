"""What got slower between two runs, and why: two traces, two studies, or one of each.

:mod:`hotlap.compare.sides` reduces each to a :class:`Side`, :func:`difference` compares two of them.
"""

from hotlap.compare.difference import difference
from hotlap.compare.records import Difference, Side
from hotlap.compare.sides import side_of_study, side_of_traces

__all__ = ["Difference", "Side", "difference", "side_of_study", "side_of_traces"]
