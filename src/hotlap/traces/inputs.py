"""The shapes and types of an operator's inputs, as JSON from the file."""

from __future__ import annotations

from typing import Any

import msgspec

from hotlap.traces.events import UNREADABLE

_MOST_INPUTS = 64
_LONGEST_TYPE = 200


def pair_of_inputs(shapes: msgspec.Raw, types: msgspec.Raw) -> bytes:
    """Both as one text, itself JSON; empty where neither was recorded."""
    written = bytes(shapes), bytes(types)
    return b"[%b,%b]" % tuple(it or b"[]" for it in written) if any(written) else b""


def shapes_and_types(pair: bytes) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """The inputs of a pair, one entry each; a list of tensors counts as an input without a shape."""
    shapes, types = map(_list, _pair(pair))
    sizes = [_shape(it) for it in shapes[:_MOST_INPUTS]]
    names = [it[:_LONGEST_TYPE] if isinstance(it, str) else "" for it in types[:_MOST_INPUTS]]
    count = max(len(sizes), len(names))
    return tuple(sizes + [()] * (count - len(sizes))), tuple(names + [""] * (count - len(names)))


def _shape(dimensions: Any) -> tuple[int, ...]:
    if isinstance(dimensions, list) and all(type(it) is int for it in dimensions):
        return tuple(dimensions)
    return ()


def _pair(text: bytes) -> tuple[Any, Any]:
    try:
        shapes, types = msgspec.json.decode(text)
    except UNREADABLE:
        return None, None
    return shapes, types


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
