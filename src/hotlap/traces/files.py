"""Find the trace files of a folder."""

from __future__ import annotations

from pathlib import Path

from hotlap.errors import TraceError
from hotlap.traces.unpacking import ENDINGS

_ENDINGS = (".json", *(f".json{it}" for it in ENDINGS))


def trace_files(path: Path) -> list[Path]:
    """The file itself, or all JSON files in the folder and below it, by name.

    Raises :class:`TraceError` when there is none.
    """
    if not path.is_dir():
        if not path.exists():
            raise TraceError("There is no such file or folder.", where=str(path), remedy="Check the path.")
        if not path.is_file():
            raise TraceError("This is not a regular file.", where=str(path), remedy="Give a file or a folder of files.")
        return [path]
    found = sorted(it for it in path.rglob("*") if it.name.lower().endswith(_ENDINGS) and it.is_file())
    if not found:
        raise TraceError(
            "The folder holds no .json file, plain or packed (.gz, .xz, .zst).",
            where=str(path),
            remedy="Give the folder of the traces.",
        )
    return found
