"""A reference run with initial weights that a shorter number format can hold."""

from __future__ import annotations

from typing import Any

from hotlap.records import RoundWeights
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: RoundWeights) -> None:
    """As soon as a model is known."""
    place.hooks.model_found.append(lambda root: round_weights(place.hooks.torch, root, asked.number_format))


def round_weights(torch: Any, root: Any, number_format: str) -> None:
    """Round every trained weight to another number format and back; it is computed with in its own as before."""
    with torch.no_grad():
        for parameter in root.parameters():
            if parameter.requires_grad and parameter.is_floating_point():
                parameter.copy_(parameter.to(getattr(torch, number_format)))
