"""Tensors within tuples, mappings and dataclasses: each by a name, and the same structure around other tensors."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAXIMUM_DEPTH = 8


def named_tensors(output: Any, name: str = "output", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every tensor of an output with where it is: ``output.logits``, ``output["hidden"][0]``; in a stable order.

    Mappings with attributes of the same names, as transformers' outputs are, and dataclasses name theirs by attribute.
    """
    if hasattr(output, "dim") and hasattr(output, "element_size"):
        yield name, output
    elif depth >= MAXIMUM_DEPTH:
        return
    elif isinstance(output, Mapping):
        for key, value in output.items():
            is_attribute = isinstance(key, str) and key.isidentifier() and getattr(output, key, None) is value
            yield from named_tensors(value, f"{name}.{key}" if is_attribute else f"{name}[{key!r}]", depth + 1)
    elif isinstance(output, tuple) and hasattr(output, "_fields"):
        for field, value in zip(output._fields, output, strict=True):
            yield from named_tensors(value, f"{name}.{field}", depth + 1)
    elif isinstance(output, (tuple, list)):
        for index, value in enumerate(output):
            yield from named_tensors(value, f"{name}[{index}]", depth + 1)
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        for it in dataclasses.fields(output):
            yield from named_tensors(getattr(output, it.name, None), f"{name}.{it.name}", depth + 1)


def rebuilt(example: Any, tensors: Iterator[Any], depth: int = 0) -> Any:
    """The same structure with these tensors in place of its own, in the order of :func:`named_tensors`.

    Raises StopIteration with fewer tensors than the structure has, and what a class raises that cannot be made of its
    own fields.
    """
    if hasattr(example, "dim") and hasattr(example, "element_size"):
        return next(tensors)
    if depth >= MAXIMUM_DEPTH:
        return example
    if isinstance(example, Mapping):
        values = {key: rebuilt(value, tensors, depth + 1) for key, value in example.items()}
        fields = dataclasses.is_dataclass(
            example
        )  # such as transformers' outputs, which are both mappings and dataclasses
        made: Any = type(example)
        return made(**values) if fields else made(values)
    if isinstance(example, tuple) and hasattr(example, "_fields"):
        return type(example)(*(rebuilt(it, tensors, depth + 1) for it in example))
    if isinstance(example, (tuple, list)):
        return type(example)(rebuilt(it, tensors, depth + 1) for it in example)
    if dataclasses.is_dataclass(example) and not isinstance(example, type):
        fields_of = dataclasses.fields(example)
        return dataclasses.replace(
            example, **{it.name: rebuilt(getattr(example, it.name, None), tensors, depth + 1) for it in fields_of}
        )
    return example


def in_format(structure: Any, convert: Callable[[Any], Any]) -> Any:
    """The same structure around converted tensors; itself where none changes."""
    found = [it for _, it in named_tensors(structure)]
    converted = [convert(it) for it in found]
    if all(map(operator.is_, found, converted)):
        return structure
    return rebuilt(structure, iter(converted))
