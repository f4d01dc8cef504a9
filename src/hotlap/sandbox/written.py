"""What a run wrote, read off its layers when its processes are gone."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator

from hotlap.sandbox.order import POINTS

_MOST_ENTRIES = 200_000
_LARGEST_POINTS_BYTES = 2**20


def written_files(layers: str) -> Iterator[str]:
    """The files and links that were made or changed, by the paths that the script knew them by."""
    for point, upper in _uppers(layers):
        for path, status in _walk(upper):
            if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                yield point.rstrip("/") + path[len(upper) :]


def written_bytes(layers: str) -> int:
    """How much room the layers take."""
    return sum(status.st_blocks * 512 for _, upper in _uppers(layers) for _, status in _walk(upper))


def read_only_points(layers: str) -> list[str]:
    """Places that no layer could lie over, and that were shown read-only instead."""
    return _points(layers)[1]


def _uppers(layers: str) -> list[tuple[str, str]]:
    return [(point, f"{layers}/{number}/upper") for number, point in enumerate(_points(layers)[0])]


def _points(layers: str) -> tuple[list[str], list[str]]:
    try:
        with open(f"{layers}/{POINTS}", "rb") as file:
            found = json.loads(file.read(_LARGEST_POINTS_BYTES))
    except (OSError, ValueError):  # the launcher did not get that far
        return [], []
    return [str(it) for it in found["points"]], [str(it) for it in found["read_only"]]


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
