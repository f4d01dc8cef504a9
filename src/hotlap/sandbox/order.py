"""The order for the launcher: a file of names and values, each followed by a zero byte.

Standard modules that this package does not import, since importing them takes longer than all that the launcher does:
collections, enum, functools, json, re, signal, typing.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NAMESPACES, FENCE, NONE = "namespaces", "fence", "none"

SETUP_FAILED = 125
"""The exit status of a launcher that could not isolate the command, and so did not start it."""

POINTS = "points"
"""The file in the folder of layers that says which folder each layer covers."""

LEFT_RUNNING = ".left-running"
"""Added to the name of the order's file: the file that says that processes were left when the command had ended."""

_LISTS = ("command", "shared", "shared_at", "hidden", "interest", "writable", "owned")
_WORDS = ("directory", "mode", "network", "layers")


class Order:
    """One command to be started in isolation.

    ``layers`` is the folder for what it writes (``namespaces``). ``shared`` are folders that it reads and changes
    directly, at the paths in ``shared_at``; ``hidden`` those that appear empty; ``interest`` paths that it is likely to
    write to. ``writable`` is where the kernel lets it write (``fence``). ``owned`` are the folders to remove when the
    order's owner ends before the command does.
    """

    def __init__(
        self,
        *,
        command: Sequence[str],
        directory: str,
        mode: str,
        pid_namespace: bool = False,
        network: str = "open",
        layers: str = "",
        shared: Sequence[str] = (),
        shared_at: Sequence[str] = (),
        hidden: Sequence[str] = (),
        interest: Sequence[str] = (),
        writable: Sequence[str] = (),
        owned: Sequence[str] = (),
    ) -> None:
        self.command = command
        self.directory = directory
        self.mode = mode
        self.pid_namespace = pid_namespace
        self.network = network
        self.layers = layers
        self.shared = shared
        self.shared_at = shared_at
        self.hidden = hidden
        self.interest = interest
        self.writable = writable
        self.owned = owned

    def with_shared(self, folder: str) -> Order:
        """The same, with one more folder that the command sees and changes directly."""
        return self._with("shared", "shared_at", "writable", folder=folder)

    def with_owned(self, folder: str) -> Order:
        """The same, with one more folder to be removed."""
        return self._with("owned", folder=folder)

    def _with(self, *names: str, folder: str) -> Order:
        fields = dict(vars(self))
        for name in names:
            fields[name] = [*fields[name], folder]
        return Order(**fields)

    def encoded(self) -> bytes:
        """The order as the launcher reads it."""
        pairs = [(name, getattr(self, name)) for name in _WORDS]
        pairs += [(name, it) for name in _LISTS for it in getattr(self, name)]
        pairs += [("pid_namespace", "")] if self.pid_namespace else []
        return encoded(pairs)

    @classmethod
    def decoded(cls, text: bytes) -> Order:
        """The order that :meth:`encoded` wrote."""
        words: dict[str, str] = {}
        lists: dict[str, list[str]] = {name: [] for name in _LISTS}
        for name, value in decoded(text):
            if name in lists:
                lists[name].append(value)
            else:
                words[name] = value
        pid_namespace = words.pop("pid_namespace", None) is not None
        return cls(pid_namespace=pid_namespace, **words, **lists)  # type: ignore[arg-type]


def encoded(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Encode names and values as bytes; neither may contain a zero byte, as no path and no argument can."""
    return b"".join(os.fsencode(it) + b"\0" for pair in pairs for it in pair)


def decoded(text: bytes) -> list[tuple[str, str]]:
    """The names and values that :func:`encoded` wrote; a truncated entry is left out."""
    parts = [os.fsdecode(it) for it in text.split(b"\0")[:-1]]
    return list(zip(parts[::2], parts[1::2], strict=False))
