"""Allocators that can be preloaded in place of the C library's: their names, and where they are installed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

LIBRARIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "jemalloc": ("libjemalloc.so.2",),
        "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"),
    }
)
"""The file names of each, the one that does no more than allocate first."""

PRELOADED = ("jemalloc", "tcmalloc", "mimalloc", "tbbmalloc")
"""Parts of the names of libraries that replace the C library's allocator."""

_FOLDERS = ("usr/local/lib", "usr/lib64", "usr/lib", "lib64", "lib")


def installed(root: Path = Path("/")) -> dict[str, str]:
    """Return the path of each allocator that is installed below ``root`` in a folder of the system's libraries."""
    folders = [folder for it in _FOLDERS for folder in ((root / it), *sorted((root / it).glob("*-linux-gnu*")))]
    found: dict[str, str] = {}
    for name, files in LIBRARIES.items():
        paths = (folder / file for file in files for folder in folders)
        path = next((it for it in paths if it.is_file()), None)
        if path is not None:
            found[name] = str(path)
    return found
