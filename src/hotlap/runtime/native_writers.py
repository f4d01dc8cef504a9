"""Writers and readers that open files without Python's help: each is given the path at which the overlay keeps them.

One line of :data:`TABLE` each. What cannot be redirected so is found by the controller's snapshots
(:mod:`hotlap.trial.snapshot`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

from hotlap.runtime.overlay import Overlay

# What the arguments of a call mean for the file: the flags it is opened with, or None where it is only read.
Intent: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], int | None]

_REWRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_UPDATE = os.O_RDWR | os.O_CREAT


def _rewrites(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> int | None:
    return _REWRITE


def _reads(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> int | None:
    return None


def _updates(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> int | None:
    return _UPDATE


def _updates_if_shared(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> int | None:
    shared = keywords.get("shared", arguments[1] if len(arguments) > 1 else False)
    return _UPDATE if shared else None


def _by_h5_mode(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> int | None:
    mode = keywords.get("mode", arguments[2] if len(arguments) > 2 else "r")
    return {"r": None, "w": _REWRITE, "r+": os.O_RDWR}.get(mode, _UPDATE)


@dataclass(frozen=True)
class NativeCall:
    """A function of ``module`` that takes a path as its argument number ``position``, named ``keyword``; ``kind`` says
    whether it is a plain function, a method (its first argument is the object) or a class to be derived from."""

    module: str
    name: str
    position: int
    keyword: str
    intent: Intent
    kind: str = "function"


TABLE = (
    NativeCall("torch", "_C.PyTorchFileWriter", 0, "file_name", _rewrites, "class"),
    NativeCall("torch", "_C.PyTorchFileReader", 0, "file_name", _reads, "class"),
    NativeCall("torch", "_C.ScriptModule.save", 1, "filename", _rewrites, "method"),
    NativeCall("torch", "_C.import_ir_module", 1, "filename", _reads),
    NativeCall("torch", "UntypedStorage.from_file", 0, "filename", _updates_if_shared),
    NativeCall("torch", "from_file", 0, "filename", _updates_if_shared),
    NativeCall("safetensors", "serialize_file", 1, "filename", _rewrites),
    NativeCall("safetensors", "safe_open", 0, "filename", _reads),
    NativeCall("safetensors.numpy", "serialize_file", 1, "filename", _rewrites),
    NativeCall("safetensors.numpy", "safe_open", 0, "filename", _reads),
    NativeCall("safetensors.torch", "serialize_file", 1, "filename", _rewrites),
    NativeCall("safetensors.torch", "safe_open", 0, "filename", _reads),
    NativeCall("sqlite3", "connect", 0, "database", _updates),
    NativeCall("sqlite3", "dbapi2.connect", 0, "database", _updates),
    NativeCall("h5py", "File.__init__", 1, "name", _by_h5_mode, "method"),
    NativeCall("cv2", "imwrite", 0, "filename", _rewrites),
    NativeCall("cv2", "imread", 0, "filename", _reads),
)
WATCHED = tuple(dict.fromkeys(call.module for call in TABLE))


def redirect_native_calls(name: str, module: ModuleType, overlay: Overlay) -> list[tuple[Any, str, Any]]:
    """Redirect what ``module`` has of the table; returns (owner, attribute, original) of each for taking it back."""
    replaced = []
    for call in TABLE:
        if call.module != name:
            continue
        *owners, attribute = call.name.split(".")
        owner: Any = module
        for part in owners:
            owner = getattr(owner, part, None)
        original = getattr(owner, attribute, None)
        if original is None or isinstance(original, _Redirected) or hasattr(original, "redirected_by_hotlap"):
            continue
        if call.kind == "class":
            stand_in: Any = _derived(original, call, overlay)
        else:
            stand_in = _Redirected(original, call, overlay)
        setattr(owner, attribute, stand_in)
        replaced.append((owner, attribute, original))
    return replaced


class _Redirected:
    """The native function with its path translated."""

    def __init__(self, original: Callable[..., Any], call: NativeCall, overlay: Overlay) -> None:
        functools.update_wrapper(self, original)
        self._original = original
        self._call = call
        self._overlay = overlay

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        arguments, keywords = _translated(self._call, self._overlay, arguments, keywords)
        return self._original(*arguments, **keywords)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None or self._call.kind != "method":
            return self
        return functools.partial(self, instance)


def _derived(original: Any, call: NativeCall, overlay: Overlay) -> type:
    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:
        arguments, keywords = _translated(call, overlay, arguments, keywords)
        original.__init__(self, *arguments, **keywords)

    namespace = {"__init__": __init__, "__module__": original.__module__, "redirected_by_hotlap": True}
    return type(original.__name__, (original,), namespace)


def _translated(
    call: NativeCall, overlay: Overlay, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    by_position = len(arguments) > call.position
    path = arguments[call.position] if by_position else keywords.get(call.keyword)
    if not isinstance(path, (str, bytes, os.PathLike)) or not _is_file_name(os.fsdecode(path), keywords):
        return arguments, keywords
    place = _place(overlay, os.fsdecode(path), call.intent(arguments, keywords))
    if by_position:
        return (*arguments[: call.position], place, *arguments[call.position + 1 :]), keywords
    return arguments, {**keywords, call.keyword: place}


def _is_file_name(path: str, keywords: dict[str, Any]) -> bool:
    """Not sqlite's names for databases that are no files, or that are written as addresses."""
    return path not in ("", ":memory:") and not (keywords.get("uri") and path.startswith("file:"))


def _place(overlay: Overlay, path: str, flags: int | None) -> str:
    """Where the file is or is to be. Where there is none, or no folder for it, the native code gets a path at which
    there is none either, so that it fails in its own words."""
    try:
        if flags is not None:
            return overlay.for_writing(path, flags)
        return path if overlay.is_same_as_below(path) else overlay.locate(path)
    except (FileNotFoundError, NotADirectoryError):
        return overlay.nowhere(path)
