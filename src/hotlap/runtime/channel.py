"""The line to the controller: one JSON object a line over a local socket."""

from __future__ import annotations

import os
import socket

import msgspec

from hotlap.records import BlockDone, End, Hello, Proceed, Report, ToChild

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)


class Channel:
    """Connects when the first message is sent: processes that never train never call."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._received = b""

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def send(self, message: Hello | BlockDone | Report) -> None:
        """Send one message. A controller that is gone ends this process: a trial never outlives its study."""
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._socket.connect(self._address)
            self._socket.sendall(_ENCODER.encode(message) + b"\n")
        except OSError:
            os._exit(1)

    def receive(self) -> Proceed | End:
        """Wait for the controller's next word."""
        if self._socket is None:
            os._exit(1)
        while b"\n" not in self._received:
            try:
                arrived = self._socket.recv(65536)
            except OSError:
                arrived = b""
            if not arrived:
                os._exit(1)
            self._received += arrived
        line, _, self._received = self._received.partition(b"\n")
        return _DECODER.decode(line)
