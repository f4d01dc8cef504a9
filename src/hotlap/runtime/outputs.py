"""What a model returns: tensors within tuples, mappings and dataclasses, each by a name, and how they are consumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
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


def consume(output: Any) -> None:
    """Bring an output to the host, as whoever asked for it would: on an accelerator the call is over only then."""
    for _, tensor in named_tensors(output):
        if tensor.device.type != "cpu":
            tensor.cpu()
