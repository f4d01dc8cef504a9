"""Compare two runs, and explain what got slower: two traces, two studies, or one of each.

:mod:`hotlap.compare.sides` reduces each run to a :class:`Side`; :func:`difference` compares two sides.
"""

from hotlap.compare.difference import difference
from hotlap.compare.records import Difference, Side
from hotlap.compare.sides import side_of_study, side_of_traces

__all__ = ["Difference", "Side", "difference", "side_of_study", "side_of_traces"]
