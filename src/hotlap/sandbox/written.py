"""What a run wrote, read from its layers when its processes are gone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from hotlap.sandbox.order import POINTS, decoded

_MOST_ENTRIES = 200_000
_LARGEST_POINTS_BYTES = 2**20


def written_files(layers: str) -> Iterator[str]:
    """The files and links that were made or changed, by the paths that the script knew them by."""
    for point, upper in _uppers(layers):
        for path, status in _walk(upper):
            if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                yield point.rstrip("/") + path[len(upper) :]


def written_bytes(layers: str) -> int:
    """The size of the layers, in bytes."""
    return sum(status.st_blocks * 512 for _, upper in _uppers(layers) for _, status in _walk(upper))


def read_only_points(layers: str) -> list[str]:
    """Places that no layer could cover, and that were shown read-only instead."""
    return [point for kind, point in _points(layers) if kind == "read_only"]


def _uppers(layers: str) -> list[tuple[str, str]]:
    return [(point, f"{layers}/{number}/upper") for number, (_, point) in enumerate(_points(layers))]


def _points(layers: str) -> list[tuple[str, str]]:
    """Whether each place has its layer, and which it is."""
    try:
        with open(f"{layers}/{POINTS}", "rb") as file:
            return decoded(file.read(_LARGEST_POINTS_BYTES))
    except OSError:  # the launcher did not get that far
        return []


def _walk(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    waiting, seen = [folder], 0
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if seen > _MOST_ENTRIES:
                        return
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
                    yield entry.path, status
        except OSError:  # gone, or without permission
            continue
