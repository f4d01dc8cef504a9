"""Runs a user's script as a trial does, with its writes redirected: ``redirected_child.py OVERLAY SCRIPT``.

The overlay ``-`` means: without redirection. The files that were written are listed in OVERLAY/../files.json.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from types import ModuleType

from hotlap.runtime.files import WATCHED, Redirection, redirect_writes
from hotlap.runtime.imports import ImportWatch


def redirect(overlay: str, *passthrough: str) -> Redirection:
    redirection = redirect_writes(Path(overlay), passthrough=tuple(map(Path, passthrough)))
    ImportWatch(WATCHED, redirection.on_import, missed).start()
    return redirection


def missed(name: str, module: ModuleType) -> None:
    raise AssertionError(f"{name} was imported around the watch")


if __name__ == "__main__":
    overlay, script = sys.argv[1:3]
    sys.argv = sys.argv[2:]
    if overlay == "-":
        runpy.run_path(script, run_name="__main__")
    else:
        with Path(overlay).with_name("files.json").open("w") as report:  # before anything is redirected
            redirection = redirect(overlay, *filter(None, [os.environ.get("PASSTHROUGH")]))
            try:
                runpy.run_path(script, run_name="__main__")
            finally:
                json.dump([[it.path, it.redirected] for it in redirection.files()], report)
