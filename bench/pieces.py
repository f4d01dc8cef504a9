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
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=kind)
    found = measure()
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_bytes(msgspec.json.encode(found))
    unfinished.replace(path)
    return found
