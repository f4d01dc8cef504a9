"""Predict steps of many ranks from a measured step of one: arithmetic, without trials and without torch.

:func:`step_of` reads a step's shape from its trace, :func:`predict` simulates it for each number of ranks and strategy.
"""

from hotlap.scaling.predict import predict, rank_counts
from hotlap.scaling.shape import step_of

__all__ = ["predict", "rank_counts", "step_of"]
