"""G0: settings that a lever must not change.

For hundreds of steps a lost weight decay changes the loss by less than rounding does; only this gate detects it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from hotlap.records import GateResult, Invariants

NAMES = frozenset(Invariants.__struct_fields__)

_Row: TypeAlias = "float | int | bool | str | tuple[float, ...]"

_WORDS = {
    "learning_rates": "the learning rate",
    "weight_decays": "the weight decay",
    "other_hyperparameters": "an optimizer's hyperparameters",
    "clip_values": "the limit of gradient clipping",
    "samples": "the samples in a step",
    "batch_hashes": "the batch",
    "dropout": "the dropout probability",
    "training": "the training mode",
    "trainable": "the number of trainable parameters",
}

_MAY_BE_EMPTY = frozenset({"clip_values", "dropout"})
_COUNTED = {"clip_values": "Gradients are clipped a different number of times", "dropout": "Dropout layers"}

# A fused or capturable optimizer stores rates as float32 tensors, rounded by up to 6e-8.
_RELATIVE_ROUNDING = 1e-6


def compare_invariants(baseline: Invariants, candidate: Invariants, *, allowed: frozenset[str]) -> GateResult:
    """Compare the invariants of both runs, step by step up to the end of the shorter run.

    ``allowed`` names the fields of :class:`~hotlap.records.Invariants` that the lever declares to change. The gate
    passes if all others agree; it stays open (``passed`` is None) if one run has a column that the other lacks, or if
    there are no columns. Clipping or dropout in only one of two recorded runs is a difference, not a gap.

    Raises :class:`ValueError` for an allowed name that is not an invariant.
    """
    unknown = allowed - NAMES
    if unknown:
        raise ValueError(f"There is no invariant named {sorted(unknown)[0]!r}; there are {', '.join(sorted(NAMES))}.")
    recorded = bool(baseline.training and candidate.training)
    as_many_steps = recorded and len(baseline.training) == len(candidate.training)
    compared, missing = 0, []
    for name in Invariants.__struct_fields__:
        ours, theirs = getattr(baseline, name), getattr(candidate, name)
        if name in allowed or not (ours or theirs):
            continue
        if not (ours and theirs) and not (recorded and name in _MAY_BE_EMPTY):
            missing.append(_WORDS[name])
            continue
        whole = name == "dropout" or (name in _MAY_BE_EMPTY and as_many_steps)
        text = _difference(name, ours, theirs, whole=whole)
        if text:
            return GateResult(gate="G0", passed=False, found=1.0, limit=0.0, text=text)
        compared += 1
    if missing:
        return GateResult(gate="G0", passed=None, text=f"Observed in only one run: {', '.join(missing)}.")
    if not compared:
        return GateResult(gate="G0", passed=None, text="No setting that must stay the same was observed.")
    text = f"{compared} settings of the training agree at every step."
    return GateResult(gate="G0", passed=True, found=0.0, limit=0.0, text=text)


def _difference(name: str, ours: Sequence[_Row], theirs: Sequence[_Row], *, whole: bool) -> str:
    """The first difference as a sentence, or nothing; with ``whole`` the lengths must agree too."""
    for row, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        unknown = name == "batch_hashes" and not (one and other)
        if not unknown and not _same(one, other):
            place = f"In dropout layer {row + 1}" if name == "dropout" else f"At step {row + 1}"
            return f"{place} {_WORDS[name]} is {_show(other)} instead of {_show(one)}."
    if whole and len(ours) != len(theirs):
        return f"{_COUNTED[name]}: {len(theirs)} instead of {len(ours)}."
    return ""


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=_RELATIVE_ROUNDING) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def _show(row: _Row) -> str:
    if isinstance(row, tuple):
        shown = ", ".join(f"{it:.6g}" for it in row[:4]) + (", ..." if len(row) > 4 else "")
        return f"({shown})" if len(row) != 1 else shown
    if isinstance(row, float):
        return f"{row:.6g}"
    return str(row)[:80]
