"""The handshake: a description of this interpreter and its packages, written for the controller before the first
launch.

:mod:`hotlap.trial.handshake` reads it. Nothing here needs a package, and torch is not imported: that takes seconds.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys

PROTOCOL = 1
_IMPORTED = ("msgspec", "numpy", "psutil")


def write(path: str) -> None:
    """Write the document to ``path``, as a whole or not at all. Raises ``OSError``."""
    packages = {name: _imported(name) for name in _IMPORTED}
    packages["torch"] = _looked_up("torch")
    document = {
        "protocol": PROTOCOL,
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable or "",
        "packages": packages,
    }
    unfinished = f"{path}.{os.getpid()}"
    with open(unfinished, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(document, file)
    os.replace(unfinished, path)  # noqa: PTH105


def _imported(name: str) -> dict[str, object]:
    """Whether a package can be imported: one that is installed may be broken."""
    try:
        module = importlib.import_module(name)
    except (ImportError, OSError, AttributeError, RuntimeError, SystemError) as error:
        return {"found": False, "version": "", "problem": f"{type(error).__name__}: {error}"}
    return {"found": True, "version": str(getattr(module, "__version__", "")), "problem": ""}


def _looked_up(name: str) -> dict[str, object]:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    return {"found": importlib.util.find_spec(name) is not None, "version": version, "problem": ""}
