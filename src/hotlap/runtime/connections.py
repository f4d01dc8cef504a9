"""Which hosts this process connects to, kept for the report; nothing is blocked.

Python's audit events (PEP 578) report every address that Python code connects or sends to, and ``getaddrinfo`` shows
the names of the addresses. Each process of a run adds to the same file, so that loader workers and spawned trainers
count too. Connections of native code are found by the controller (:mod:`hotlap.trial.connections`).
"""

from __future__ import annotations

import _socket
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hotlap.records import Contact
from hotlap.runtime.originals import io, posix

FILE = "connections.jsonl"
"""The file in a run's folder to which all its processes add, one :class:`hotlap.records.Contact` a line."""

_MOST_CONTACTS = 100
_EVENTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_LOCAL = frozenset({"", "::", "::1", "0.0.0.0", "localhost"})

_active: _Contacts | None = None
_original: Callable[..., Any] | None = None


def watch_connections(run_directory: Path) -> None:
    """Start to record the hosts that this process and its forks connect to."""
    global _active, _original
    if _original is None:  # audit hooks cannot be removed
        _original = _socket.getaddrinfo
        _socket.getaddrinfo = _getaddrinfo
        sys.addaudithook(_audit)
    _active = _Contacts(str(run_directory / FILE))


def hosts() -> tuple[str, ...]:
    """What all processes of this run connected to so far, as ``name:port``; at most a hundred."""
    return _active.hosts() if _active is not None else ()


class _Contacts:
    """The addresses that were connected to, and the names that were looked up."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: set[Contact] = set()

    def add(self, contact: Contact) -> None:
        if contact in self._known or len(self._known) >= 2 * _MOST_CONTACTS:
            return
        self._known.add(contact)
        with contextlib.suppress(OSError):  # a full disk must fail the script's own write, not this one
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = posix.open(self._path, flags, 0o600)
            try:
                posix.write(descriptor, msgspec.json.encode(contact) + b"\n")
            finally:
                posix.close(descriptor)

    def hosts(self) -> tuple[str, ...]:
        found: list[Contact] = []
        with contextlib.suppress(OSError), io.open(self._path, "rb") as lines:
            for line in lines:
                with contextlib.suppress(msgspec.DecodeError):  # a line cut short by a full disk
                    found.append(msgspec.json.decode(line, type=Contact))
        names = {it.address: it.name for it in found if it.name}
        reached = (it for it in found if it.port)
        named = dict.fromkeys(msgspec.structs.replace(it, name=names.get(it.address, "")).host for it in reached)
        return tuple(named)[:_MOST_CONTACTS]


def _getaddrinfo(host: Any, *arguments: Any, **keywords: Any) -> Any:
    """``_socket.getaddrinfo``, which also records the addresses of the name."""
    assert _original is not None
    found = _original(host, *arguments, **keywords)
    if _active is not None and isinstance(host, (str, bytes)):
        name = host.decode("utf-8", "backslashreplace") if isinstance(host, bytes) else host
        for address in dict.fromkeys(str(entry[4][0]) for entry in found):
            if address != name and not _is_local(address):
                _active.add(Contact(address=address, name=name))
    return found


def _audit(event: str, arguments: tuple[Any, ...], watched: frozenset[str] = _EVENTS) -> None:
    # At the interpreter's end the module's names are None already, and hooks are still called.
    if event in watched and _active is not None:
        _saw(event, *arguments[:2])


def _saw(event: str, used: Any, target: Any) -> None:
    """A socket is about to reach an address. A datagram socket that is connected sends nothing by that."""
    if not isinstance(target, tuple) or len(target) < 2 or _active is None:
        return
    address, port = target[:2]
    sends = event != "socket.connect" or used.type != _socket.SOCK_DGRAM
    if isinstance(address, str) and isinstance(port, int) and port and sends and not _is_local(address):
        _active.add(Contact(address=address.partition("%")[0], port=port))


def _is_local(address: str) -> bool:
    return address in _LOCAL or address.startswith(("127.", "::ffff:127."))
