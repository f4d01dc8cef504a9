"""A reference run with every initial weight moved by one unit in the last place."""

from __future__ import annotations

from typing import Any

from hotlap.records import NudgeWeights
from hotlap.runtime.devices import local_part
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: NudgeWeights) -> None:
    """As soon as a model is known."""
    place.hooks.model_found.append(lambda root: nudge_weights(place.hooks.torch, root, asked))


def nudge_weights(torch: Any, root: Any, asked: NudgeWeights) -> None:
    """Move every trained weight to the next representable number in that direction; outward, a zero moves up."""
    with torch.no_grad():
        for parameter in root.parameters():
            if parameter.requires_grad and parameter.is_floating_point():
                held = local_part(parameter)
                held.copy_(torch.nextafter(held, _limits(torch, held, asked)))


def _limits(torch: Any, weights: Any, asked: NudgeWeights) -> Any:
    """For each weight the infinite number that it is moved towards."""
    above = torch.full_like(weights, float("inf"))
    if asked.towards == "outward":
        return torch.where(weights < 0, -above, above)
    return above if asked.towards == "above" else -above
