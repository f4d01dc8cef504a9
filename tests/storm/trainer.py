"""A training script that is hard to end: it sends heartbeats, writes over its user's files, and leaves processes.

Arguments: a word for the command line of all its processes, the folders of data and home, and that of the tests' fake
of a trainer, whose loop it runs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

WORD, DATA, HOME = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
sys.path.insert(0, sys.argv[4])

import fake_child  # noqa: E402 (found by the line before)

_HOP_SECONDS = 0.02


def apart(work: Callable[[], None], *, session: bool = False) -> None:
    """Do some work in another process, without waiting for it."""
    if os.fork() == 0:
        try:
            if session:
                os.setsid()
            work()
        finally:
            os._exit(0)


def load() -> None:
    """A worker of a loader: reads, and never ends by itself."""
    while True:
        with suppress(OSError):
            (DATA / "set.csv").read_bytes()
        time.sleep(0.01)


def desert() -> None:
    time.sleep(1000)


def become_daemon() -> None:
    """Fork twice, and keep nothing of the environment by which hotlap could recognise the process."""
    if os.fork() == 0:
        os.setsid()
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(1000)", WORD], {})


def hop() -> None:
    """Be another process fifty times a second."""
    while os.fork() == 0:
        time.sleep(_HOP_SECONDS)


def spoil() -> None:
    """Write where the user's files are, again and again."""
    content = os.urandom(1 << 16)
    while True:
        for path in (Path("ckpt/best.pt"), DATA / "set.csv", HOME / "settings.json", Path("ckpt/new.pt")):
            with suppress(OSError):
                path.write_bytes(content)
        with suppress(OSError), Path("log.txt").open("a") as log:
            log.write("step\n")
        with suppress(OSError):
            Path("notes.txt").unlink()
        time.sleep(0.01)


def main() -> None:
    apart(load)
    apart(load)
    apart(desert, session=True)
    apart(become_daemon, session=True)
    apart(hop, session=True)
    threading.Thread(target=spoil, daemon=True).start()
    sys.argv[1:] = ["--step-seconds", "0.002"]
    fake_child.train(fake_child.options())


if __name__ == "__main__":
    main()
