"""Replacing a function transparently for compilers, pickle and classes that hold the function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

Function: TypeAlias = Callable[..., Any]


def never_compile(torch: ModuleType, function: Any, *, with_what_it_calls: bool = False) -> None:
    """Let ``torch.compile`` run this function as it is where compiled code leads there, and count no graph break for
    it. Done without importing Dynamo, which takes seconds."""
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        action = frames._FrameAction
        within = action.SKIP if with_what_it_calls else action.DEFAULT
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(action.SKIP, within))
    else:  # earlier versions of torch
        frames.skip_code(function.__code__)


def known_to_torchscript(torch: ModuleType, function: Function, operator: str) -> None:
    """Let ``torch.jit.script`` take our function for the operator that it wraps, as it takes the original."""
    torch.jit._builtins._register_builtin(function, operator)


def named_alike(owner: Any, name: str, call: Function) -> Function:
    """Named by where it can be found, so that it is pickled by that name. Functions of C go by names of their own."""
    if isinstance(owner, ModuleType):
        call.__module__, call.__qualname__ = owner.__name__, name
    else:
        kind = owner if isinstance(owner, type) else type(owner)
        call.__module__, call.__qualname__ = kind.__module__, f"{kind.__qualname__}.{name}"
    return call


class _BuiltinLike:
    """Looks like the built-in function in whose place it stands, pickled copies included."""

    __wrapped__: Function

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce__(self) -> str:
        return self.__wrapped__.__name__


def builtin_like(function: Function, call: Function) -> Any:
    # Instances are called through their class; `staticmethod` keeps the instance itself out of the arguments.
    stand_in = type("builtin_function_or_method", (_BuiltinLike,), {"__call__": staticmethod(call)})()
    return functools.update_wrapper(stand_in, function)
