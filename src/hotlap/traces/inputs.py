"""The shapes and types of an operator's inputs, as JSON from the file."""

from __future__ import annotations

from typing import Any

import msgspec

from hotlap.traces.events import NO_TEXT, UNREADABLE

_MOST_INPUTS = 64
_LONGEST_TYPE = 200
_NOTHING = b"[]"
SPARSE = "sparse "
"""Before the type of an input that has sizes and no strides: of a sparse matrix, or of nested tensors."""


def pair_of_inputs(shapes: msgspec.Raw, types: msgspec.Raw, strides: msgspec.Raw = NO_TEXT) -> bytes:
    """Both as one text, itself JSON; empty where neither was recorded. ``strides``, which newer profilers write, show
    which inputs are sparse."""
    written = bytes(shapes), bytes(types)
    steps = bytes(strides)
    if steps and steps.count(_NOTHING) != written[0].count(_NOTHING):
        written = written[0], _with_sparse(*written, steps)
    return b"[%b,%b]" % tuple(it or b"[]" for it in written) if any(written) else b""


def _with_sparse(shapes: bytes, types: bytes, strides: bytes) -> bytes:
    """The types, with those of sparse inputs marked."""
    try:
        read = [_list(msgspec.json.decode(it)) for it in (shapes, types, strides)]
    except UNREADABLE:
        return types
    marked = [
        f"{SPARSE}{name}" if _shape(sizes) and steps == [] and isinstance(name, str) else name
        for sizes, name, steps in zip(*read, strict=False)
    ]
    return msgspec.json.encode([*marked, *read[1][len(marked) :]])


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
