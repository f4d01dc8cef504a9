"""Folders in which libraries keep what they can make or fetch again: shared with the user's own runs, so that a model
or a data set is not downloaded again for each launch.

Inductor's is not one of them: it also keeps which kernels were fastest, as measured while other arms were starting.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

# Each variable that moves such folders, with the caches below it; the whole folder where none is named.
_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "XDG_CACHE_HOME": (),
    "HF_HOME": ("hub", "xet", "datasets", "assets", "modules", "metrics", "evaluate", "accelerate"),
    "HF_HUB_CACHE": (), "HF_XET_CACHE": (), "HF_DATASETS_CACHE": (), "HF_ASSETS_CACHE": (), "HF_MODULES_CACHE": (),
    "HUGGINGFACE_HUB_CACHE": (), "TRANSFORMERS_CACHE": (),
    "TORCH_HOME": ("hub",),
    "TRITON_CACHE_DIR": (), "TORCH_EXTENSIONS_DIR": (), "CUDA_CACHE_PATH": (),
    "NUMBA_CACHE_DIR": (), "MPLCONFIGDIR": (), "KAGGLEHUB_CACHE": (), "PYTHONPYCACHEPREFIX": (),
}  # fmt: skip
_IN_HOME = (".cache", ".triton", ".nv", ".keras")
# Users point these variables at a scratch disk or at /tmp, where their checkpoints are too. Such a folder counts only
# if its name or its parent's name says that it is a cache.
_NAMES = ("cache", "hugging", "torch", "triton", "inductor", "transformers", "numba", "matplotlib", "kagglehub")
_OF_LIBRARIES = ("huggingface", "torch", "torch_extensions", "triton", "matplotlib", "kagglehub")
"""The names of libraries' folders in XDG_CACHE_HOME."""
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")


def cache_folders(environment: Mapping[str, str], home: str, own: Iterable[str]) -> list[str]:
    """The canonical paths of the caches of this user, whether they exist or not; ``own`` are folders that are never a
    cache whatever a variable says, nor are folders above them. ``home`` is empty where this user has none."""
    protected = [os.path.realpath(it) for it in (*own, *_TEMPORARY)]
    named = [it for name in _VARIABLES for it in _named_by(name, environment.get(name, ""))]
    named += [os.path.join(home, name) for name in _IN_HOME if home]
    found = dict.fromkeys(os.path.realpath(it) for it in named)
    return [it for it in found if not any(_holds(it, folder) for folder in protected)]


def _named_by(variable: str, folder: str) -> list[str]:
    """The caches in the folder that a variable names."""
    if not folder:
        return []
    folder = os.path.expanduser(folder)
    parts = _VARIABLES[variable]
    if not _is_called_a_cache(folder):
        parts = {"XDG_CACHE_HOME": _OF_LIBRARIES, "HF_HOME": ("hub", "xet")}.get(variable, parts)
        return [os.path.join(folder, it) for it in parts]
    return [os.path.join(folder, it) for it in parts or ("",)]


def _is_called_a_cache(folder: str) -> bool:
    names = [it.lower() for it in os.path.abspath(folder).split("/")[-2:]]
    return any(it == "hf" or it.startswith(".") or any(word in it for word in _NAMES) for it in names)


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
