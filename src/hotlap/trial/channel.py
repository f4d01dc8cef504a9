"""The controller's end of the conversation with the processes of one child: one JSON object a line, over a stream
socket (:mod:`hotlap.trial.transport`). Messages are untrusted: they are parsed strictly and bounded in size."""

from __future__ import annotations

import hmac
import selectors
import socket
from contextlib import suppress

import msgspec

from hotlap.records import Arrived, BlockDone, FromChild, Hello, Report, ToChild
from hotlap.trial.transport import Transport

LONGEST_MESSAGE_BYTES = 256 * 2**20

_READ_BYTES = 2**20
_LONGEST_SECRET_BYTES = 256
_DECODER: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(FromChild)


class Connection:
    """One process that connected, and its messages so far. ``done`` is its answer to the last Proceed, ``trouble`` why
    it was disconnected, and ``waits`` whether it has :class:`Arrived` and was not yet told to continue. It is
    ``admitted`` once it has sent the ``secret``, where there is one."""

    def __init__(self, stream: socket.socket, secret: bytes = b"") -> None:
        self.admitted = not secret
        self.hello: Hello | None = None
        self.done: BlockDone | None = None
        self.report: Report | None = None
        self.closed = False
        self.trouble = ""
        self.waits = False
        self.stream = stream
        self._secret = secret
        self._pending = bytearray()

    @property
    def leaving(self) -> bool:
        """Whether the process has sent its last message."""
        return self.closed or self.report is not None

    def send(self, message: ToChild) -> None:
        """Send a message; a process that is gone is noticed when reading, after its last message."""
        with suppress(OSError):
            self.stream.sendall(msgspec.json.encode(message) + b"\n")

    def receive(self) -> None:
        """Read what has arrived."""
        try:
            received = self.stream.recv(_READ_BYTES)
        except OSError:
            received = b""
        if not received:
            self.closed = True
            return
        if len(self._pending) + len(received) > LONGEST_MESSAGE_BYTES:
            self._cut_off("it sent a message that is too long")
            return
        if b"\n" not in received:
            self._pending += received
            if not self.admitted and len(self._pending) > _LONGEST_SECRET_BYTES:
                self._cut_off("it sent no secret")
            return
        *lines, rest = (bytes(self._pending) + received).split(b"\n")
        self._pending = bytearray(rest)
        for line in lines:
            if self.admitted:
                self._take(line)
            elif hmac.compare_digest(line, self._secret):
                self.admitted = True
            else:
                self._cut_off("it sent another secret")
                return

    def _take(self, line: bytes) -> None:
        try:
            message = _DECODER.decode(line)
        except msgspec.DecodeError as error:
            self._cut_off(f"it sent a message that cannot be read: {error}")
            return
        match message:
            case Arrived():
                self.waits = True
            case Hello():
                self.hello = message
            case BlockDone():
                self.done = message
            case Report():
                self.report = message

    def _cut_off(self, why: str) -> None:
        self.trouble = self.trouble or why
        self.closed = True


class Channel:
    """Listens to a transport and keeps every connection that was admitted, in order."""

    def __init__(self, transport: Transport) -> None:
        self.connections: list[Connection] = []
        self._not_admitted: list[Connection] = []
        self._secret = transport.secret
        self._listener = transport.listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    @property
    def open(self) -> bool:
        """Whether any process that connected may still send something."""
        return any(not connection.closed for connection in self.connections)

    def poll(self, timeout_seconds: float) -> bool:
        """Take in what arrives within ``timeout_seconds``; return at the first event. False when there was none."""
        events = self._selector.select(timeout_seconds)
        for key, _ in events:
            if isinstance(key.data, Connection):
                self._read(key.data)
            else:
                self._accept()
        return bool(events)

    def close(self) -> None:
        """End every connection and stop listening."""
        for connection in (*self.connections, *self._not_admitted):
            connection.stream.close()
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        try:
            stream, _ = self._listener.accept()
        except OSError:
            return
        connection = Connection(stream, self._secret)
        (self.connections if connection.admitted else self._not_admitted).append(connection)
        self._selector.register(stream, selectors.EVENT_READ, connection)

    def _read(self, connection: Connection) -> None:
        connection.receive()
        if connection.admitted and connection in self._not_admitted:
            self._not_admitted.remove(connection)
            self.connections.append(connection)
        if connection.closed:
            self._selector.unregister(connection.stream)
            if not connection.admitted:
                connection.stream.close()
