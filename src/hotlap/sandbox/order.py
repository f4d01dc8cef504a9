"""What the launcher is told: a JSON object in a file, since the launcher must start within milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

NAMESPACES, FENCE, NONE = "namespaces", "fence", "none"

SETUP_FAILED = 125
"""The exit status of a launcher that could not isolate the command, and so did not start it."""

POINTS = "points.json"
"""The file in the folder of layers that says which folder each layer lies over."""


class Order(NamedTuple):
    """One command to be started in isolation.

    ``layers`` is the folder for what it writes (``namespaces``). ``shared`` are folders that it sees and changes as
    they are, each with the path at which it sees it; ``hidden`` those in whose place it sees an empty one;
    ``interest`` paths that it is likely to write to. ``writable`` is where the kernel lets it write (``fence``).
    ``owned`` are the folders to be removed when whoever gave the order ends before the command does.
    """

    command: Sequence[str]
    directory: str
    mode: str
    pid_namespace: bool = False
    network: str = "open"
    layers: str = ""
    shared: Sequence[Sequence[str]] = ()
    hidden: Sequence[str] = ()
    interest: Sequence[str] = ()
    writable: Sequence[str] = ()
    owned: Sequence[str] = ()
