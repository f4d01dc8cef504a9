"""Floating-point operations of an operator, as recorded in the file.

Profilers count them with ``with_flops=True``. Newer ones write a convolution's arguments besides its inputs' shapes:
shapes alone do not show the stride, and so not how large the output is.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite, prod

import msgspec

from hotlap.traces.events import NO_TEXT, UNREADABLE, DetailedArguments, Event

_CONVOLUTIONS = frozenset({"aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution"})
"""Convolutions with a known order of arguments: input, weight, bias, stride, padding, dilation; the last one then shows
whether it is transposed."""

_TRANSPOSED = "aten::convolution"
_MOST_FLOPS = 2**62
_MOST_DIMENSIONS = 3


def flops_of(event: Event) -> int:
    """The operations of an operator: the profiler's count, else a convolution's by its arguments; 0 if neither is
    recorded or valid."""
    arguments: DetailedArguments = event.args
    if arguments.flops != NO_TEXT:
        return _counted(arguments.flops)
    if event.name in _CONVOLUTIONS and arguments.concrete != NO_TEXT:
        return _of_convolution(event.name, bytes(arguments.shapes), bytes(arguments.concrete))
    return 0


def _counted(written: msgspec.Raw) -> int:
    try:
        flops = msgspec.json.decode(written, type=int | float)
    except UNREADABLE:
        return 0
    return int(flops) if isfinite(flops) and 0 < flops <= _MOST_FLOPS else 0


@lru_cache(maxsize=4096)
def _of_convolution(name: str, shapes: bytes, concrete: bytes) -> int:
    """Count two operations per multiply-add; 0 if the arguments are insufficient."""
    try:
        dimensions = msgspec.json.decode(shapes, type=list[list[int]])
        written = msgspec.json.decode(concrete, type=list[str])
        stride, padding, dilation = (msgspec.json.decode(written[it], type=list[int]) for it in (3, 4, 5))
    except (*UNREADABLE, IndexError):
        return 0
    image, weight = (dimensions[it] if len(dimensions) > it else [] for it in (0, 1))
    spatial = len(image) - 2
    if not 0 < spatial <= _MOST_DIMENSIONS or len(weight) != len(image):
        return 0
    if any(len(it) != spatial for it in (stride, padding, dilation)) or min(stride) < 1:
        return 0
    if name == _TRANSPOSED and written[6:7] == ["True"]:
        positions = image[2:]
    else:
        positions = [
            (size + 2 * pad - far * (kernel - 1) - 1) // step + 1
            for size, kernel, step, pad, far in zip(image[2:], weight[2:], stride, padding, dilation, strict=True)
        ]
    flops = 2 * image[0] * prod(positions) * prod(weight)
    return flops if min(positions) > 0 and 0 < flops <= _MOST_FLOPS else 0
