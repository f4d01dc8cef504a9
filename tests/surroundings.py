"""The environment of tests: no variable of the user's affects hotlap, or what it starts."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

_KEPT = frozenset({"HOTLAP_NEEDS_BROWSER"})
_STEERING = re.compile(
    r"(ACCELERATE|COMET|GIT|GITHUB|GLOO|HF|HOTLAP|KMP|MASTER|MKL|MLFLOW|NCCL|NEPTUNE|OMP|OPENBLAS|PYTORCH|SLURM)_.*"
    r"|(TRANSFORMERS|TRITON|TTY|WANDB|XDG)_.*|(CLICOLOR|LOCAL_RANK|PYTHON|RANK|TORCH|WORLD_SIZE).*"
    r"|CI|COLUMNS|FORCE_COLOR|GLIBC_TUNABLES|LD_PRELOAD|LINES|NO_COLOR|TERM|.*_PROXY|.*_CACHE_DIR"
)
_LONGEST_TEMPORARY_BYTES = 32
"""The path of a Unix socket may have a hundred bytes, and scripts in tests make some deep in temporary folders."""
_SHORT_TEMPORARY = "/tmp"


def neutral(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """The environment without what steers Python, torch, launchers, trackers, git or a terminal, with a home that is
    empty, and with the tests' own interpreter as ``python``. Time zone and language stay: no outcome may depend on
    them.

    The folders of ``PYTHONPATH`` stay too, as absolute paths: an interpreter that nothing was installed into needs them
    in every folder that a test changes to.
    """
    kept = {
        name: value for name, value in environment.items() if name in _KEPT or not _STEERING.fullmatch(name.upper())
    }
    folders = [it for it in environment.get("PYTHONPATH", "").split(os.pathsep) if it]
    if folders:
        kept["PYTHONPATH"] = os.pathsep.join(str(Path(it).absolute()) for it in folders)
    own = str(Path(sys.executable).parent)
    path = os.pathsep.join(dict.fromkeys((own, *environment.get("PATH", os.defpath).split(os.pathsep))))
    return {**kept, "PATH": path, "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}


def temporary(usual: str) -> str:
    """Where temporary folders go, instead of to the usual place where that has too long a path for sockets."""
    too_long = len(os.fsencode(usual)) > _LONGEST_TEMPORARY_BYTES
    return _SHORT_TEMPORARY if too_long and os.access(_SHORT_TEMPORARY, os.W_OK | os.X_OK) else usual
