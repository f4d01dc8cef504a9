"""Patching what shares a model between processes and is imported by the script itself: torch's FSDP, and DeepSpeed.

Neither is loaded by ``import torch``. :mod:`hotlap.runtime.boot` watches for their imports, so that scripts which use
none of them pay for none.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

from hotlap.runtime.hooks import Hooks

Replace: TypeAlias = Callable[[Any, str, Any], None]

FSDP, DEEPSPEED = "torch.distributed.fsdp", "deepspeed"
WATCHED = (FSDP, DEEPSPEED)


def intercept_sharding(hooks: Hooks, replace: Replace, name: str, module: ModuleType) -> None:
    """Patch the module of that name, one of :data:`WATCHED`, right after the script has imported it."""
    if name == FSDP:
        _intercept_fsdp1(hooks, replace, module)
        if hasattr(module, "fully_shard"):  # torch 2.6 and later have it there
            _intercept_fsdp2(hooks, replace, module)
    elif name == DEEPSPEED and hasattr(module, "initialize"):
        _intercept_deepspeed(hooks, replace, module)


def intercept_what_is_loaded(hooks: Hooks, replace: Replace) -> None:
    """Patch those that were imported before."""
    for name in WATCHED:
        module = sys.modules.get(name)
        if module is not None:
            intercept_sharding(hooks, replace, name, module)


def _intercept_fsdp1(hooks: Hooks, replace: Replace, module: Any) -> None:
    kind = module.FullyShardedDataParallel
    construct = kind.__init__
    signature = inspect.signature(construct)

    @functools.wraps(construct)
    def init(wrapper: Any, *args: Any, **kwargs: Any) -> None:
        arguments = _by_name(signature, (wrapper, *args), kwargs)
        if arguments is None or not hooks.before_sharding:
            construct(wrapper, *args, **kwargs)
            return
        del arguments[next(iter(signature.parameters))]
        for edit in hooks.before_sharding:
            edit("fsdp1", arguments)
        construct(wrapper, **arguments)

    replace(kind, "__init__", init)


def _intercept_fsdp2(hooks: Hooks, replace: Replace, module: Any) -> None:
    shard = module.fully_shard
    signature = inspect.signature(shard)

    @functools.wraps(shard)
    def sharding(*args: Any, **kwargs: Any) -> Any:
        arguments = _by_name(signature, args, kwargs)
        if arguments is None or not hooks.before_sharding:
            return shard(*args, **kwargs)
        for edit in hooks.before_sharding:
            edit("fsdp2", arguments)
        return shard(arguments.pop("module"), **arguments)

    for it in tuple(sys.modules.values()):  # the function's other homes differ between versions of torch
        if getattr(it, "__name__", "").startswith("torch.distributed") and vars(it).get("fully_shard") is shard:
            replace(it, "fully_shard", sharding)


def _intercept_deepspeed(hooks: Hooks, replace: Replace, module: Any) -> None:
    initialize = module.initialize
    signature = inspect.signature(initialize)

    @functools.wraps(initialize)
    def initializing(*args: Any, **kwargs: Any) -> Any:
        arguments = _by_name(signature, args, kwargs)
        if arguments is None:  # wrong arguments: let DeepSpeed say so
            return initialize(*args, **kwargs)
        for edit in hooks.before_deepspeed:
            edit(arguments)
        made = initialize(**arguments)
        _intercept_step(hooks, made[0])
        for tell in hooks.after_deepspeed:
            tell(made[0])
        return made

    replace(module, "initialize", initializing)


def _intercept_step(hooks: Hooks, engine: Any) -> None:
    if not hooks.before_engine_step:
        return
    take = engine.step

    @functools.wraps(take)
    def step(*args: Any, **kwargs: Any) -> Any:
        for tell in hooks.before_engine_step:
            tell(engine)
        return take(*args, **kwargs)

    engine.step = step


def _by_name(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The given arguments by name; None where they do not fit the signature, or are not all named by it."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(it.kind in variable for it in signature.parameters.values()):
        return None
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError:
        return None
