"""The whole gradients of a model whose weights several processes share.

Gathering one is a collective: every rank must call this for the same models at the same moment, as all of them do
before an optimizer's first update. One weight, or one unit of FSDP1, is whole at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

_WRAPPED = "_fsdp_wrapped_module."


def unwrapped(torch: Any, root: Any) -> Any:
    """The script's own module, without ``torch.compile`` and ``DistributedDataParallel`` around it."""
    wrapper = torch.nn.parallel.DistributedDataParallel
    while True:
        inner = getattr(root, "_orig_mod", None) or (root.module if isinstance(root, wrapper) else None)
        if inner is None:
            return root
        root = inner


def whole_gradients(torch: Any, root: Any) -> Iterator[tuple[str, Any]]:
    """Each weight's name, as the unwrapped model has it, and its gradient: whole, whichever ranks hold it.

    Of FSDP1 with ``use_orig_params=False``, which torch cannot give whole, the part that is here.
    """
    model = unwrapped(torch, root)
    units = _units(model)
    if not units:
        yield from _gathered(model.named_parameters())
        return
    inside = {name for unit in units for name in _names_within(unit, model.get_submodule(unit))}
    yield from _gathered((name, it) for name, it in model.named_parameters() if name not in inside)
    for unit in units:
        yield from _of_unit(unit, model.get_submodule(unit))


def engine_gradients(engine: Any) -> Iterator[tuple[str, Any]]:
    """The same for an engine of DeepSpeed before its step, by the function that DeepSpeed documents for it. A script
    that has an engine has imported it."""
    whole = sys.modules["deepspeed.utils"].safe_get_full_grad
    for name, parameter in engine.module.named_parameters():
        gradient = whole(parameter) if parameter.requires_grad else None
        if gradient is not None:
            yield name, gradient


def _gathered(parameters: Any) -> Iterator[tuple[str, Any]]:
    for name, parameter in parameters:
        gradient = parameter.grad
        if gradient is not None:
            yield name.replace(_WRAPPED, ""), gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def _units(model: Any) -> list[str]:
    """The names of the modules that FSDP1 wraps. A script that uses it has imported it."""
    module = sys.modules.get("torch.distributed.fsdp")
    kind = getattr(module, "FullyShardedDataParallel", None)
    return [name for name, it in model.named_modules() if kind is not None and isinstance(it, kind)]


def _names_within(prefix: str, unit: Any) -> list[str]:
    return [f"{prefix}.{name}" if prefix else name for name, _ in unit.named_parameters()]


def _of_unit(prefix: str, unit: Any) -> Iterator[tuple[str, Any]]:
    """The gradients of the weights of this unit alone, not of those within it."""
    nested = [f"{it}." for it in _units(unit) if it]
    summon = type(unit).summon_full_params
    try:
        with summon(unit, recurse=False, writeback=False, with_grads=True):
            own = _own(unit, nested)
            yield from ((name, it.clone()) for name, it in _gathered(_named(prefix, own)))
            return
    except NotImplementedError:  # torch raises it on every rank, before anything is exchanged
        pass
    yield from _gathered(_named(prefix, _own(unit, nested)))


def _own(unit: Any, nested: list[str]) -> list[tuple[str, Any]]:
    return [
        (name, it)
        for name, it in unit.named_parameters()
        if not any(name.startswith(own.replace(_WRAPPED, "")) or name.startswith(own) for own in nested)
    ]


def _named(prefix: str, parameters: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    return ((f"{prefix}.{name}" if prefix else name, it) for name, it in parameters)
