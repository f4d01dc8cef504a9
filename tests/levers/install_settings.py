"""Install each setting of the list on standard input, and print what that wrote: lever -> one text for each setting."""

from __future__ import annotations

import os
import sys
import tempfile

import msgspec
import torch

from hotlap.levers.api import find
from hotlap.records import Setting
from hotlap.runtime.hooks import Hooks


def written(setting: Setting, hooks: Hooks) -> str:
    """What installing writes to the process's output and errors, by whatever way."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            find(setting.lever).install(hooks, setting)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, descriptor in enumerate(kept, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)
        file.seek(0)
        return file.read().decode()


def main() -> None:
    """Levers that are tried one by one in a trial have hooks of their own here."""
    found: dict[str, list[str]] = {}
    for setting in msgspec.json.decode(sys.stdin.buffer.read(), type=list[Setting]):
        found.setdefault(setting.lever, []).append(written(setting, Hooks(torch=torch)))
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()
