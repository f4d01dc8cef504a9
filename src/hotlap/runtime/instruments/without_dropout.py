"""No dropout: two trainings can be compared number by number only when everything random agrees."""

from __future__ import annotations

from typing import Any

from hotlap.records import WithoutDropout
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: WithoutDropout) -> None:
    """As soon as a model is known."""
    place.hooks.model_found.append(switch_off_dropout)


def switch_off_dropout(root: Any) -> None:
    """Set every dropout probability of the module tree to zero: ``p`` of dropout layers, and any attribute that is
    named after dropout and holds a share (recurrent and attention layers keep theirs so)."""
    for module in root.modules():
        if "Dropout" in type(module).__name__ and hasattr(module, "p"):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            if "drop" in name.lower() and isinstance(value, float) and 0.0 < value < 1.0:
                setattr(module, name, 0.0)
