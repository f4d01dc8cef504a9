"""The connection to the controller: one JSON object per line over a stream socket."""

from __future__ import annotations

import math
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import msgspec

from hotlap.records import CONNECTION_LOST, Arrived, BlockDone, End, Hello, Proceed, Report, ToChild

_LONGEST_ADDRESS_CHARACTERS = 1000
_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)


def encoded(message: Arrived | Hello | BlockDone | Report) -> bytes:
    """The message as JSON, which knows neither NaN nor infinity: in a report, where a learning rate or a limit of
    clipping may be such, both are sent as the largest number."""
    if not isinstance(message, Report):
        return _ENCODER.encode(message)
    return _ENCODER.encode(_representable(msgspec.to_builtins(message)))


def _representable(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else math.copysign(sys.float_info.max, value)
    if isinstance(value, dict):
        return {key: _representable(it) for key, it in value.items()}
    if isinstance(value, (list, tuple)):
        return [_representable(it) for it in value]
    return value


class Channel:
    """Connects when the first message is sent: processes that never train never call."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._identity = (0, 0)
        self._received = b""

    def send(self, message: Arrived | Hello | BlockDone | Report) -> None:
        """Send one message. A controller that is gone, or a connection that the script closed, ends this process: a
        trial never outlives its study."""
        try:
            if self._socket is None:
                self._socket = _connected(self._address)
                self._identity = _identity(self._socket)
            elif _identity(self._socket) != self._identity:  # the script closed it, and has its number for a file
                raise OSError
            self._socket.sendall(encoded(message) + b"\n")
        except OSError:
            os._exit(CONNECTION_LOST)

    def receive(self) -> Proceed | End:
        """Wait for the controller's next message."""
        if self._socket is None:
            os._exit(CONNECTION_LOST)
        while b"\n" not in self._received:
            try:
                arrived = self._socket.recv(65536)
            except OSError:
                arrived = b""
            if not arrived:
                os._exit(CONNECTION_LOST)
            self._received += arrived
        line, _, self._received = self._received.partition(b"\n")
        return _DECODER.decode(line)


def _connected(address: str) -> socket.socket:
    """A connection to the Unix socket at that path, or to the port that the file there names, with its secret sent.

    Raises :class:`OSError`.
    """
    if stat.S_ISSOCK(Path(address).stat().st_mode):
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stream.connect(address)
        return stream
    try:
        with Path(address).open(encoding="ascii") as file:
            host, port, secret = file.read(_LONGEST_ADDRESS_CHARACTERS).split()
        stream = socket.create_connection((host, int(port)))
    except ValueError as error:
        raise OSError(f"{address} names no port") from error
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.sendall(secret.encode("ascii") + b"\n")
    return stream


def _identity(stream: socket.socket) -> tuple[int, int]:
    status = os.fstat(stream.fileno())
    return status.st_dev, status.st_ino
