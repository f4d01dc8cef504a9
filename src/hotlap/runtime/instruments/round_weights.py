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
    dtype = getattr(torch, number_format)
    with torch.no_grad():
        for parameter in root.parameters():
            if parameter.requires_grad and parameter.is_floating_point():
                parameter.copy_(_rounded(torch, parameter, dtype))


def _rounded(torch: Any, weight: Any, dtype: Any) -> Any:
    """In that format. 8 bits have too small a range for weights as they are, so each tensor is scaled to its largest
    number first, as by those who compute in it."""
    if dtype.itemsize > 1 or not weight.numel():
        return weight.to(dtype)
    scale = torch.finfo(dtype).max / weight.abs().max().clamp(min=torch.finfo(weight.dtype).tiny)
    return (weight * scale).to(dtype).to(weight.dtype) / scale
