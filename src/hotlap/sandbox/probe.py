"""Run in isolation to check that it works: `python -I -S probe.py PATH` tries to write a file at PATH."""

from __future__ import annotations

import os
import sys

WROTE, DENIED = "wrote", "denied"


def attempt(path: str) -> str:
    """Whether a new file could be written and read back, or was denied."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.write(descriptor, b"probe")
        with open(path, "rb") as file:
            return WROTE if file.read() == b"probe" else DENIED
    except OSError as error:
        return f"{DENIED}: {error.strerror}"


if __name__ == "__main__":
    os.write(1, attempt(sys.argv[1]).encode())
