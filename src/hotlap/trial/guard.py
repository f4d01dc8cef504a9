"""Makes sure that no child outlives this process, however it ends.

At an ordinary exit the guard kills what is left. For ``kill -9`` of this process it keeps :mod:`hotlap.trial.watchdog`
running next to it, one for all children.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from hotlap.sandbox import removal
from hotlap.trial import tree

PACKAGE_PARENT = Path(__file__).resolve().parents[2]
"""The folder that holds the package ``hotlap``."""


class Guard:
    """The children of this process that are alive, by their mark (the path of a temporary folder of theirs)."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._roots: dict[str, tree.Root] = {}
        self._owned: dict[str, tuple[str, ...]] = {}
        self._watchdog: subprocess.Popen[bytes] | None = None

    def expect(self, mark: str, owned: Sequence[str] = ()) -> None:
        """Expect a child with that mark; the ``owned`` folders are removed with it, as is the mark."""
        self._owned[mark] = tuple(owned)
        self._keep(tree.Root(mark=mark))

    def started(self, root: tree.Root) -> None:
        """The expected child is running."""
        self._keep(root)

    def release(self, mark: str) -> None:
        """The child and its folders are gone."""
        self._owned.pop(mark, None)
        if self._roots.pop(mark, None) is not None:
            self._send({"mark": mark, "gone": True})

    def close(self) -> None:
        """Kill every child that is left, and end the watchdog. Does nothing in a process forked from this one."""
        if os.getpid() != self._owner:
            return
        roots = list(self._roots.values())
        for root in roots:
            tree.kill(root)
        for root in roots:  # when all are dead: one may have written to another's folder
            for folder in (*self._owned[root.mark], root.mark):
                removal.remove(folder)
            self.release(root.mark)
        if self._watchdog is not None and self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
            self._watchdog.wait()
            self._watchdog = None

    def _keep(self, root: tree.Root) -> None:
        self._roots[root.mark] = root
        self._send(self._message(root))

    def _message(self, root: tree.Root) -> Mapping[str, object]:
        return {"mark": root.mark, "pid": root.pid, "created": root.created, "owned": self._owned[root.mark]}

    def _send(self, message: Mapping[str, object]) -> None:
        """Write to the watchdog; where there is none, or it died, start one and send it everything."""
        if self._watchdog is not None and self._write(message):
            return
        self._watchdog = _start_watchdog()
        for root in self._roots.values():
            self._write(self._message(root))

    def _write(self, message: Mapping[str, object]) -> bool:
        assert self._watchdog is not None and self._watchdog.stdin is not None
        if self._watchdog.poll() is not None:
            return False
        try:
            self._watchdog.stdin.write(json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            return False
        return True


@cache
def guard() -> Guard:
    """The one guard of this process."""
    only = Guard()
    atexit.register(only.close)
    return only


def own_python_path() -> str:
    """A PYTHONPATH with which ``python -m hotlap...`` finds this package in a child of our own interpreter."""
    return os.pathsep.join(filter(None, (str(PACKAGE_PARENT), os.environ.get("PYTHONPATH", ""))))


def _start_watchdog() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.watchdog"],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": own_python_path()},
    )
