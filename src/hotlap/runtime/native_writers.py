"""Writers and readers that open files without Python's help: each is given the path at which the overlay keeps them.

:data:`hotlap.runtime.native_calls.TABLE` lists them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from hotlap.runtime.native_calls import TABLE, Arguments, Keywords, NativeCall, given
from hotlap.runtime.overlay import Overlay

WATCHED = tuple(dict.fromkeys(call.module for call in TABLE))


def redirect_native_calls(name: str, module: ModuleType, overlay: Overlay) -> None:
    """Redirect what ``module``, imported as ``name``, has of the table."""
    calls: dict[str, list[NativeCall]] = {}
    for call in TABLE:
        if call.module == name:
            calls.setdefault(call.name, []).append(call)
    for path, same in calls.items():
        *owners, attribute = path.split(".")
        owner: Any = module
        for part in owners:
            owner = getattr(owner, part, None)
        original = getattr(owner, attribute, None)
        if original is None or isinstance(original, _Redirected) or hasattr(original, "redirected_by_hotlap"):
            continue
        kind = same[0].kind
        stand_in: Any = (
            _derived(original, same[0], overlay) if kind in ("class", "new") else _Redirected(original, same, overlay)
        )
        setattr(owner, attribute, stand_in)


class _Redirected:
    """The native function with its paths translated."""

    def __init__(self, original: Callable[..., Any], calls: Sequence[NativeCall], overlay: Overlay) -> None:
        functools.update_wrapper(self, original)
        self._original = original
        self._calls = tuple(calls)
        self._overlay = overlay

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        moved: dict[str, str] = {}
        for call in self._calls:
            arguments, keywords = _translated(call, self._overlay, arguments, keywords, moved)
        try:
            result = self._original(*arguments, **keywords)
        finally:
            if any(it.makes_folders for it in self._calls):
                self._overlay.folders_were_made()
        return [_as_given(it, moved) for it in result] if type(result) is list and moved else result

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None or self._calls[0].kind != "method":
            return self
        return functools.partial(self, instance)


def _as_given(result: Any, moved: dict[str, str]) -> Any:
    """A path that the function returns, by the script's name for it."""
    for place, path in moved.items():
        if isinstance(result, str) and result.startswith(place):
            return path + result[len(place) :]
    return result


def _derived(original: Any, call: NativeCall, overlay: Overlay) -> type:
    """A class that translates the path and is otherwise the original: also objects that are not made through it are
    instances of it."""

    class Kin(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original) if cls is derived else type.__instancecheck__(cls, instance)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original) if cls is derived else type.__subclasscheck__(cls, subclass)

    def __new__(cls: type, *arguments: Any, **keywords: Any) -> Any:
        arguments, keywords = _translated(call, overlay, arguments, keywords, {})
        return original.__new__(cls, *arguments, **keywords)

    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:
        arguments, keywords = _translated(call, overlay, arguments, keywords, {})
        original.__init__(self, *arguments, **keywords)

    made_by = {"__new__": __new__} if call.kind == "new" else {"__init__": __init__}
    namespace = {**made_by, "__module__": original.__module__, "redirected_by_hotlap": True}
    derived: type = Kin(original.__name__, (original,), namespace)
    return derived


def _translated(
    call: NativeCall, overlay: Overlay, arguments: Arguments, keywords: Keywords, moved: dict[str, str]
) -> tuple[Arguments, Keywords]:
    """The arguments with the path that the overlay has; ``moved`` receives it, with what the script gave."""
    paths = given(arguments, keywords, call.position, call.keyword)
    if not _is_local(keywords):
        return arguments, keywords
    keywords = dict(keywords)  # a row of the table may add to it

    def place_of(path: Any) -> Any:
        if not isinstance(path, (str, bytes, os.PathLike)) or "://" in os.fsdecode(path)[1:10]:
            return path
        place = _place(call, overlay, os.fsdecode(path), arguments, keywords)
        if place == os.fsdecode(path):
            return path
        moved[place] = os.fsdecode(path)
        return place

    found = [place_of(it) for it in paths] if type(paths) is list else place_of(paths)
    if len(arguments) > call.position:
        return (*arguments[: call.position], found, *arguments[call.position + 1 :]), keywords
    return arguments, {**keywords, call.keyword: found} if call.keyword in keywords else keywords


def _is_local(keywords: Keywords) -> bool:
    filesystem = keywords.get("filesystem")
    return filesystem is None or type(filesystem).__name__ == "LocalFileSystem"


def _place(call: NativeCall, overlay: Overlay, path: str, arguments: Arguments, keywords: Keywords) -> str:
    """Where the file is or is to be. Where there is none, or no folder for it, the native code gets a path at which
    there is none either, so that it fails with its own message."""
    try:
        return call.locate(overlay, path, arguments, keywords)
    except (FileNotFoundError, NotADirectoryError):
        return overlay.nowhere(path)
