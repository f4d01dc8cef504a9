"""The functions of :mod:`posix` and :mod:`_io` as they are before stand-ins take their places, in those modules too."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import _io as io
    import posix as posix
else:
    import _io
    import posix as _posix


def _copy(module: ModuleType) -> ModuleType:
    copy = ModuleType(module.__name__, module.__doc__)
    vars(copy).update(vars(module))
    return copy


if not TYPE_CHECKING:
    posix = _copy(_posix)
    io = _copy(_io)

__all__ = ["io", "posix"]
