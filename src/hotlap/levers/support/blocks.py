"""The repeated blocks of a model, found by its structure, and the switch that some models have. Not a lever itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import Any

FEWEST = 2
# transformers 5 renamed the method; the older name is deprecated there.
SWITCHES = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
_COMPILED = "_orig_mod"


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive modules of one class; ``place`` is how source reaches them from the root (``.layers[1:5]``), empty
    where it cannot be written."""

    blocks: tuple[Any, ...]
    place: str


@dataclass(frozen=True, slots=True)
class Switch:
    """The outermost module with a method that switches checkpointing on, and whether it can do so for every second
    block."""

    owner: Any
    place: str
    method: str
    skips: bool


def repeated_blocks(torch: ModuleType, root: Any) -> Run | None:
    """The run of composite modules with most parameters among all ``ModuleList`` and ``Sequential`` containers."""
    best: Run | None = None
    most = 0
    for name, module in root.named_modules():
        if not isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            continue
        for start, blocks in _runs(torch, list(module)):
            size = sum(it.numel() for block in blocks for it in block.parameters())
            if size > most:
                whole = len(blocks) == len(module)
                place = place_of(torch, root, name)
                part = "" if whole else f"[{start}:{start + len(blocks)}]"
                best, most = Run(blocks, "" if place is None else (place + part or "[:]")), size
    return best


def same_blocks(torch: ModuleType, root: Any) -> tuple[Run, ...]:
    """All runs of composite modules of which two in a row have parameters of the same names, shapes and types, so that
    what is compiled for one serves the other; in the model's order.

    Of runs inside one another, the one with most parameters is taken.
    """
    found: list[tuple[int, Run]] = []
    for name, module in root.named_modules():
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            place = place_of(torch, root, name)
            for start, blocks in _runs(torch, list(module)):
                if _alike(blocks):
                    part = f"[{start}:{start + len(blocks)}]" if len(blocks) != len(module) else ""
                    size = sum(it.numel() for block in blocks for it in block.parameters())
                    found.append((size, Run(blocks, "" if place is None else (place + part or "[:]"))))
    inside: set[int] = set()
    chosen: list[Run] = []
    for _, run in sorted(found, key=lambda it: -it[0]):
        modules = {id(it) for block in run.blocks for it in block.modules()}
        if inside.isdisjoint(modules):
            inside |= modules
            chosen.append(run)
    return tuple(run for _, run in found if any(run is it for it in chosen))


def own_switch(torch: ModuleType, root: Any) -> Switch | None:
    """The switch of a model of ``transformers``, or of one that has the same interface."""
    for name, module in root.named_modules():
        method = next((it for it in SWITCHES if callable(getattr(module, it, None))), None)
        if method is not None:
            skips = "every_n_layers" in inspect.signature(getattr(module, method)).parameters
            return Switch(module, place_of(torch, root, name) or "", method, skips)
    return None


def place_of(torch: ModuleType, root: Any, name: str) -> str | None:
    """``.layers[0].blocks`` for ``layers.0.blocks``, seen past the wrapper of a compiled model; None where a name is no
    Python identifier."""
    module, text = root, ""
    for part in name.split(".") if name else ():
        if part == _COMPILED:
            pass
        elif isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            text += f"[{part}]"
        elif isinstance(module, torch.nn.ModuleDict):
            text += f'["{part}"]'
        elif part.isidentifier():
            text += f".{part}"
        else:
            return None
        module = module.get_submodule(part)
    return text


def _runs(torch: ModuleType, modules: list[Any]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Each longest run of one class with its first index. Modules without parts, and TorchScript, are no blocks."""
    start = 0
    while start < len(modules):
        end = start + 1
        while end < len(modules) and type(modules[end]) is type(modules[start]):
            end += 1
        first = modules[start]
        composite = next(first.children(), None) is not None
        if end - start >= FEWEST and composite and not isinstance(first, torch.jit.ScriptModule):
            yield start, tuple(modules[start:end])
        start = end


def _alike(blocks: tuple[Any, ...]) -> bool:
    """Whether any two neighbours hold the same parameters; one that is compiled already may be among them."""
    built = [[(name, it.shape, it.dtype) for name, it in block.named_parameters()] for block in blocks]
    return any(one == other for one, other in pairwise(built))


def updates_statistics(torch: ModuleType, block: Any) -> bool:
    """Whether a forward pass in training mode changes the block's buffers, as batch norm does."""
    kind = torch.nn.modules.batchnorm._NormBase
    return any(isinstance(it, kind) and it.training and it.track_running_stats for it in block.modules())
