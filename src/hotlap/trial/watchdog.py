"""A separate process that ends children whose owner was killed without a chance to do so (``kill -9``).

It reads lines of JSON from its standard input, which closes when the owner ends, however it ends. A signal on the
parent's death (``PR_SET_PDEATHSIG``) would not do: it reaches the direct child only, and a frozen one's workers would
stay. Each line names a child by its mark: ``{"mark": M, "pid": null}`` comes before it is started, so that there is
no moment in which it is unknown, ``{"mark": M, "pid": P, "created": T}`` after that, ``{"mark": M, "gone": true}`` at
its end. ``"owned"`` lists further folders that go with the mark, which is one itself.
"""

from __future__ import annotations

import json
import os
import select
import sys
from typing import NamedTuple

from hotlap.sandbox import removal
from hotlap.trial import tree

_LOOK_AT_PARENT_SECONDS = 1.0
_READ_BYTES = 65536


def main() -> int:
    """Wait for the owner's end, then kill what it left and remove the folders (a mark is a folder's path)."""
    left = _follow(sys.stdin.fileno(), os.getppid())
    for it in left.values():
        tree.kill(it.root)
    for it in left.values():  # when all are dead: one may have written to another's folder
        for folder in (*it.owned, it.root.mark):
            removal.remove(folder)
    return 0


class _Left(NamedTuple):
    """A child that is alive, and the folders that go with it."""

    root: tree.Root
    owned: tuple[str, ...]


def _follow(source: int, owner: int) -> dict[str, _Left]:
    """Read until the source ends, or until the owner is no longer our parent: a process that the owner forked may hold
    the other end open."""
    left: dict[str, _Left] = {}
    pending = b""
    while os.getppid() == owner:
        readable, _, _ = select.select([source], [], [], _LOOK_AT_PARENT_SECONDS)
        if not readable:
            continue
        received = os.read(source, _READ_BYTES)
        if not received:
            break
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            _note(left, json.loads(line))
    return left


def _note(left: dict[str, _Left], message: dict[str, object]) -> None:
    mark = str(message["mark"])
    if message.get("gone"):
        left.pop(mark, None)
        return
    pid, created, owned = message.get("pid"), message.get("created", 0.0), message.get("owned")
    root = tree.Root(
        mark=mark,
        pid=pid if isinstance(pid, int) else None,
        created=created if isinstance(created, float) else 0.0,
    )
    left[mark] = _Left(root, tuple(map(str, owned)) if isinstance(owned, list) else ())


if __name__ == "__main__":
    sys.exit(main())
