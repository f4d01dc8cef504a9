"""What a run that compares numbers does differently from one that is timed.

Two trainings can be compared number by number only when everything random agrees: dropout is switched off, and
inductor draws eager's random numbers. The other switches are yardsticks: the same run with every initial weight
moved by one unit in the last place or rounded to a shorter format, in float64, or with other augmentations.
"""

from __future__ import annotations

from typing import Any

from hotlap.records import Assignment
from hotlap.runtime import randomness
from hotlap.runtime.batches import transform
from hotlap.runtime.devices import local_part
from hotlap.runtime.hooks import Fetch, Hooks


def prepare(hooks: Hooks, assignment: Assignment) -> None:
    """Hang on what the assignment asks for. Must come before the levers, so that they see the prepared model."""
    if assignment.without_dropout:
        hooks.model_found.append(switch_off_dropout)
    if assignment.nudge:
        hooks.model_found.append(lambda root: nudge_weights(hooks.torch, root))
    if assignment.rounded_weights:
        hooks.model_found.append(lambda root: round_weights(hooks.torch, root, assignment.rounded_weights))
    if assignment.reference_precision:
        _compute_in_float64(hooks)
    if assignment.aligned_randomness:
        _use_eager_random_numbers()
    if assignment.augmentation_seed is not None:
        _reseed_augmentation(hooks, assignment.augmentation_seed)


def switch_off_dropout(root: Any) -> None:
    """Set every dropout probability of the module tree to zero: ``p`` of dropout layers, and any attribute that is
    named after dropout and holds a share (recurrent and attention layers keep theirs so)."""
    for module in root.modules():
        if "Dropout" in type(module).__name__ and hasattr(module, "p"):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            if "drop" in name.lower() and isinstance(value, float) and 0.0 < value < 1.0:
                setattr(module, name, 0.0)


def nudge_weights(torch: Any, root: Any) -> None:
    """Move every trained weight to the next representable number above it."""
    with torch.no_grad():
        for parameter in root.parameters():
            if parameter.requires_grad and parameter.is_floating_point():
                held = local_part(parameter)
                held.copy_(torch.nextafter(held, torch.full_like(held, float("inf"))))


def round_weights(torch: Any, root: Any, number_format: str) -> None:
    """Round every trained weight to another number format and back; it is computed with in its own as before."""
    with torch.no_grad():
        for parameter in root.parameters():
            if parameter.requires_grad and parameter.is_floating_point():
                parameter.copy_(parameter.to(getattr(torch, number_format)))


def _compute_in_float64(hooks: Hooks) -> None:
    torch = hooks.torch

    def widen(tensor: Any) -> Any:
        return tensor.double() if tensor.is_floating_point() else tensor

    def forward(root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return transform(args, widen), transform(kwargs, widen)

    def fetch(iterator: Any, following: Fetch) -> Any:
        return transform(following(), widen)

    hooks.model_found.append(lambda root: root.to(torch.float64))
    hooks.before_forward.append(forward)
    hooks.around_fetch.append(fetch)


def _use_eager_random_numbers() -> None:
    import torch._inductor.config as inductor

    inductor.fallback_random = True


def _reseed_augmentation(hooks: Hooks, seed: int) -> None:
    """Draw what the data pipeline draws from another stream, while the sampler and the weights keep theirs.

    Workers derive their seeds from the iterator's base seed, which is shifted. In the main process the generators are
    exchanged around each fetch but the first of an iterator, in which the sampler draws its own seed.
    """
    from torch.utils.data import dataloader

    torch = hooks.torch
    dataloader._BaseDataLoaderIter._base_seed = _ShiftedSeed(seed)  # type: ignore[assignment]
    fetched: set[int] = set()
    other: list[tuple[Any, ...]] = []

    def fetch(iterator: Any, following: Fetch) -> Any:
        if id(iterator) not in fetched or iterator._num_workers > 0:
            fetched.add(id(iterator))
            return following()
        own = randomness.states(torch)
        if other:
            randomness.restore(torch, other.pop())
        else:
            randomness.seed_everything(torch, seed)
        try:
            return following()
        finally:
            other.append(randomness.states(torch))
            randomness.restore(torch, own)

    hooks.around_fetch.append(fetch)


class _ShiftedSeed:
    """Stands for ``_base_seed`` on the iterator's class: what is stored is read back shifted."""

    def __init__(self, shift: int) -> None:
        self._shift = shift

    def __get__(self, iterator: Any, kind: type | None = None) -> Any:
        return vars(iterator)["_base_seed"]

    def __set__(self, iterator: Any, value: Any) -> None:
        vars(iterator)["_base_seed"] = (int(value) + self._shift) % 2**62
