"""A reference run with rounding errors far below those that are compared."""

from __future__ import annotations

from typing import Any

from hotlap.records import ComputeInFloat64
from hotlap.runtime.batches import transform
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: ComputeInFloat64) -> None:
    """Weights, batches and the models' arguments become float64."""
    hooks, torch = place.hooks, place.hooks.torch

    def widen(tensor: Any) -> Any:
        return tensor.double() if tensor.is_floating_point() else tensor

    def forward(root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return transform(args, widen), transform(kwargs, widen)

    def fetch(iterator: Any, following: Fetch) -> Any:
        return transform(following(), widen)

    def wrapped(arguments: dict[str, Any]) -> None:
        """Its hooks on weights are lost when their type changes, and gradients would no longer be exchanged."""
        arguments["module"].to(torch.float64)

    hooks.before_data_parallel.append(wrapped)
    hooks.model_found.append(lambda root: root.to(torch.float64))
    hooks.before_forward.append(forward)
    hooks.around_fetch.append(fetch)
