"""How the processes of a child reach their controller: at a path in the child's own folder.

Where the folder can hold a Unix socket, that is one. Elsewhere (a path that is too long, a file system without sockets)
it is a file that names a port of this machine and a secret, which no other user can read.
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import Protocol

_BACKLOG = 128
_LOOPBACK = "127.0.0.1"


class Transport(Protocol):
    """Where a controller listens. ``secret`` is the first line of every connection that is a child's; empty where
    no other user can connect."""

    listener: socket.socket
    secret: bytes


class UnixTransport:
    """A Unix socket at ``path``. Raises :class:`OSError` where there can be none."""

    secret = b""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.listener.bind(str(path))
            self.listener.listen(_BACKLOG)
        except OSError:
            self.listener.close()
            raise


class TcpTransport:
    """A port of this machine, which the file at ``path`` names to this user's processes alone.

    Children that have a network of their own cannot reach it. Raises :class:`OSError`.
    """

    def __init__(self, path: Path) -> None:
        self.secret = secrets.token_hex(32).encode("ascii")
        self.listener = socket.create_server((_LOOPBACK, 0), backlog=_BACKLOG)
        host, port = self.listener.getsockname()
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(f"{host} {port} {self.secret.decode('ascii')}")
        except OSError:
            self.listener.close()
            raise


def transport_at(path: Path) -> Transport:
    """A Unix socket, or where there can be none a port. Raises :class:`OSError` where there can be neither."""
    try:
        return UnixTransport(path)
    except OSError:
        return TcpTransport(path)
