"""What an operation of torch reads and what it writes, as its schema says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

Named: TypeAlias = tuple[str, torch.Tensor]

_MAKES_MEMORY = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_", "set_"}
)
# In place, and nothing of what was there before is left. Operations that end in "_out" are known by their schema.
_OVERWRITES = frozenset(
    {"copy_", "fill_", "zero_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_", "cauchy_",
     "log_normal_", "geometric_", "_foreach_copy_", "_foreach_zero_"}
)  # fmt: skip
# What ``torch.tensor(...)`` and ``torch.from_numpy(...)`` end in.
_LITERAL = "lift_fresh"
_ONE_BY_ONE = ("_foreach_", "_fused_", "_amp_foreach_")
# Collectives go on after they return, so what they write cannot be looked at then.
_LEFT_ALONE = frozenset({"c10d", "_c10d_functional", "profiler", "prim"})


@dataclass(frozen=True, slots=True)
class Operation:
    """``is_view``: computes nothing, its result shares memory with what it is given. ``is_literal``: its numbers come
    from Python or NumPy. ``makes_memory``: what it returns holds anything. ``overwrites``: what its written arguments
    held before is not read. ``one_by_one``: works through lists of tensors, each by itself. ``left_alone``: cannot be
    checked, or holds no numbers."""

    name: str
    arguments: tuple[str, ...] = ()
    writes: frozenset[str] = frozenset()
    is_view: bool = False
    is_literal: bool = False
    makes_memory: bool = False
    overwrites: bool = False
    one_by_one: bool = False
    left_alone: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One computation: a call of an operation, or one item of a call that works through lists.

    ``reads`` and ``writes`` overlap for what is changed in place; ``numbers`` are those arguments that are no tensors
    and not finite, as ``name=value``.
    """

    reads: tuple[Named, ...]
    writes: tuple[Named, ...]
    numbers: tuple[str, ...] = ()


_known: dict[Any, Operation] = {}


def operation_of(function: Any) -> Operation:
    """What is known of a function that reached the dispatcher; one without a schema reads all and writes its result."""
    operation = _known.get(function)
    if operation is None:
        schema = getattr(function, "_schema", None)
        operation = _known[function] = Operation(str(function)) if schema is None else _from_schema(function, schema)
    return operation


def bound(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name."""
    names = operation.arguments or tuple(f"argument {index + 1}" for index in range(len(args)))
    return dict(zip(names, args, strict=False)) | kwargs


def calls(operation: Operation, arguments: dict[str, Any], result: Any) -> Iterator[Call]:
    """The computations of one call, with ``result`` being what it returned (None before it was made)."""
    numbers = tuple(f"{name}={value}" for name, value in arguments.items() if _is_bad_number(value))
    if operation.one_by_one:
        yield from _items(operation, arguments, result, numbers)
        return
    reads = tuple(
        (name, tensor)
        for name, value in arguments.items()
        if not (operation.overwrites and name in operation.writes)
        for tensor in tensors(value)
    )
    written = [(name, tensor) for name in operation.writes for tensor in tensors(arguments.get(name))]
    known = {id(tensor) for _, tensor in written}
    made = [("", tensor) for tensor in tensors(result) if id(tensor) not in known]
    yield Call(reads, (*written, *made), numbers)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in an argument or a result."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item)


def _items(operation: Operation, arguments: dict[str, Any], result: Any, numbers: tuple[str, ...]) -> Iterator[Call]:
    lists = {name: value for name, value in arguments.items() if isinstance(value, (list, tuple))}
    count = max((len(value) for value in lists.values()), default=0)
    shared = [(name, value) for name, value in arguments.items() if isinstance(value, torch.Tensor)]
    made = result if isinstance(result, (list, tuple)) else ()
    for index in range(count):
        own = [(name, value[index]) for name, value in lists.items() if index < len(value)]
        item_numbers = tuple(f"{name}={value}" for name, value in own if _is_bad_number(value))
        mine = [(name, value) for name, value in own if isinstance(value, torch.Tensor)]
        reads = [it for it in mine if not (operation.overwrites and it[0] in operation.writes)]
        writes = [it for it in mine if it[0] in operation.writes]
        if index < len(made) and isinstance(made[index], torch.Tensor):
            writes.append(("", made[index]))
        yield Call((*reads, *shared), tuple(writes), numbers + item_numbers)


def _from_schema(function: Any, schema: Any) -> Operation:
    name = str(function.overloadpacket.__name__)
    arguments = schema.arguments
    returned = [it.alias_info for it in schema.returns]
    return Operation(
        name="tensor" if name == _LITERAL else name,
        is_literal=name == _LITERAL,
        arguments=tuple(it.name for it in arguments),
        writes=frozenset(it.name for it in arguments if it.alias_info is not None and it.alias_info.is_write),
        is_view=name != _LITERAL and bool(returned) and all(it is not None and not it.is_write for it in returned),
        makes_memory=name in _MAKES_MEMORY,
        overwrites=name in _OVERWRITES or any(it.is_out for it in arguments),
        one_by_one=name.startswith(_ONE_BY_ONE),
        left_alone=function.namespace in _LEFT_ALONE,
    )


def _is_bad_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
