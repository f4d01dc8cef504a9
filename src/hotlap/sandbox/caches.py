"""Folders in which libraries keep what they can make or fetch again: shared with the user's own runs, since dozens of
launches must not download a model or a data set dozens of times."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

# Each variable that moves such folders, with those below it that are caches; all of it where none is named.
_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "XDG_CACHE_HOME": (),
    "HF_HOME": ("hub", "xet", "datasets", "assets", "modules", "metrics", "evaluate", "accelerate"),
    "HF_HUB_CACHE": (), "HF_XET_CACHE": (), "HF_DATASETS_CACHE": (), "HF_ASSETS_CACHE": (), "HF_MODULES_CACHE": (),
    "HUGGINGFACE_HUB_CACHE": (), "TRANSFORMERS_CACHE": (),
    "TORCH_HOME": ("hub",),
    "TORCHINDUCTOR_CACHE_DIR": (), "TRITON_CACHE_DIR": (), "TORCH_EXTENSIONS_DIR": (), "CUDA_CACHE_PATH": (),
    "NUMBA_CACHE_DIR": (), "MPLCONFIGDIR": (), "KAGGLEHUB_CACHE": (), "PYTHONPYCACHEPREFIX": (),
}  # fmt: skip
_IN_HOME = (".cache", ".triton", ".nv", ".keras")


def cache_folders(environment: Mapping[str, str], home: str, own: Iterable[str]) -> list[str]:
    """The canonical paths of the caches of this user, whether they exist or not; ``own`` are folders that are no cache
    whatever a variable says, nor is one above them."""
    protected = [os.path.realpath(it) for it in own]
    named = [
        os.path.join(environment[name], part)
        for name, parts in _VARIABLES.items()
        if environment.get(name)
        for part in parts or ("",)
    ]
    named += [os.path.join(home, name) for name in _IN_HOME]
    found = dict.fromkeys(os.path.realpath(os.path.expanduser(it)) for it in named)
    return [it for it in found if not any(_holds(it, folder) for folder in protected)]


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
