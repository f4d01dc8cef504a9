"""Stand-ins for the ways to open a file that are below ``open``: ``io.FileIO`` and ``io.open_code``."""

from __future__ import annotations

import os
from typing import Any

from hotlap.runtime.originals import io
from hotlap.runtime.stand_ins import Open, StandIn


class OpenCode(StandIn):
    """``io.open_code``, with which modules are read."""

    module = "io"

    def __init__(self, opening: Open) -> None:
        super().__init__(io.open_code, opening.overlay)
        self._open = opening

    def __call__(self, path: str) -> Any:
        return self._open(path, "rb")


def raw_file(opening: Open) -> type:
    """``io.FileIO`` with an opener that redirects. Files that ``open`` made are instances of it too."""

    original: Any = io.FileIO  # a name in a module would get the stand-in

    class Kin(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original) if cls is FileIO else type.__instancecheck__(cls, instance)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original) if cls is FileIO else type.__subclasscheck__(cls, subclass)

    class FileIO(original, metaclass=Kin):  # type: ignore[misc]
        __module__ = "_io"
        __qualname__ = "FileIO"

        def __init__(self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None) -> None:
            if opener is not None or not isinstance(file, (str, bytes, os.PathLike)):
                super().__init__(file, mode, closefd, opener)
                return
            with opening.seen_to():
                super().__init__(os.fspath(file), mode, closefd, opening.open_descriptor)

    return FileIO


def raw_stand_ins(opening: Open) -> dict[Any, Any]:
    """Each original function with its replacement."""
    return {io.open_code: OpenCode(opening), io.FileIO: raw_file(opening)}
