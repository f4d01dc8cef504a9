"""Which modules compute something else in training mode than in evaluation."""

from __future__ import annotations

from typing import Any

_DROPPED_BY_ITSELF = ("LSTM", "GRU", "RNN", "MultiheadAttention")
"""Modules of torch with a dropout of their own, as a number."""


def behaves_otherwise(module: Any) -> bool:
    """Whether the module is in training mode, and that changes its outputs: dropout and normalisation by the batch."""
    if not module.training:
        return False
    kind = type(module).__name__
    if "Dropout" in kind:
        return float(getattr(module, "p", 1.0)) > 0
    if kind in _DROPPED_BY_ITSELF:
        return float(module.dropout) > 0
    if kind.startswith("InstanceNorm"):
        return bool(module.track_running_stats)
    return "BatchNorm" in kind
