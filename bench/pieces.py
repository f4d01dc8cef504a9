"""Benchmarks in pieces: each finished piece is stored, and the same command goes on after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

Piece = TypeVar("Piece")


def piece(folder: Path | None, name: str, kind: type[Piece], measure: Callable[[], Piece]) -> Piece:
    """The stored piece of that name; measured, and stored, if there is none yet. Without a folder nothing is stored."""
    if folder is None:
        return measure()
    path = folder / f"{name}.json"
    earlier = stored(path, kind)
    if earlier is not None:
        return earlier
    found = measure()
    store(path, found)
    return found


def stored(path: Path | None, kind: type[Piece]) -> Piece | None:
    """What an earlier run of the same command stored there; None if it stored nothing."""
    if path is None or not path.exists():
        return None
    return msgspec.json.decode(path.read_bytes(), type=kind)


def store(path: Path | None, found: object) -> None:
    """Replace the file at once, so that a kill leaves the old one or the new one. Without a path nothing is stored."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_bytes(msgspec.json.encode(found))
    unfinished.replace(path)
