"""The bytes of a trace file, plain or gzip, piece by piece and never more than a piece in memory."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import BinaryIO

from hotlap.errors import TraceError
from hotlap.files import open_regular

PIECE_BYTES = 2**19
"""How much decompressed text :meth:`ByteSource.read` hands out at once. What is made of it fits the processor's caches,
which is worth a sixth of the time."""

MOST_EXPANSION = 200
"""Real traces shrink 10 to 60 times. DEFLATE's limit of 1032 is only reached by text that says nothing."""

EXPANSION_CHECKED_FROM = 64 * 2**20

_GZIP_MAGIC = b"\x1f\x8b"
_COMPRESSED_PIECE_BYTES = 2**18
_GZIP_WINDOW = 31
_SMALL_STEP_BYTES = 64


class ByteSource:
    """A file's decompressed bytes in order.

    ``damage`` says, once reading ended, why compressed data ended early; it is empty for a sound file.
    ``remark`` says what is odd about the file without being wrong.
    Raises :class:`TraceError` for a file that cannot be opened, is empty, or is no gzip though it claims to be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        self.remark = ""
        self.bytes_read = 0
        self._compressed_bytes = 0
        self._pending = b""
        try:
            self._file: BinaryIO = open_regular(path)
            head = self._file.read(4)
            self._file.seek(0)
        except OSError as error:
            raise TraceError(
                f"The trace cannot be opened: {error.strerror or error}.",
                where=str(path),
                remedy="Check the path and its permissions.",
            ) from error
        if not head:
            self._file.close()
            raise TraceError("The file is empty.", where=str(path), remedy="Export the trace again.")
        self._inflater = zlib.decompressobj(_GZIP_WINDOW) if head[:2] == _GZIP_MAGIC else None
        if path.suffix == ".gz" and self._inflater is None:
            self._accept_plain_text(head)

    def __enter__(self) -> ByteSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self) -> bytes:
        """The next piece; empty at the end. Raises :class:`TraceError` when a gzip blows up."""
        if self.damage:
            return b""
        try:
            piece = self._file.read(PIECE_BYTES) if self._inflater is None else self._inflate()
        except OSError as error:
            self.damage = f"reading the file failed: {error.strerror or error}"
            piece = b""
        self.bytes_read += len(piece)
        return piece

    def _accept_plain_text(self, head: bytes) -> None:
        """Downloads are often unpacked on the way and keep their name; anything else is no trace."""
        if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
            self._file.close()
            raise TraceError(
                "The file's name ends in .gz but it is no gzip file.",
                where=str(self.path),
                remedy="Download or export the trace again.",
            )
        self.remark = "the name ends in .gz but the file is not compressed; it was read as it is"

    def _inflate(self) -> bytes:
        assert self._inflater is not None
        parts: list[bytes] = []
        missing = PIECE_BYTES
        while missing > 0:
            if self._inflater.eof and not self._next_member():
                break
            if not self._pending:
                self._pending = self._file.read(_COMPRESSED_PIECE_BYTES)
                self._compressed_bytes += len(self._pending)
            if not self._pending:
                self.damage = "the gzip data stops before its end"
                break
            before = self._inflater.copy()
            try:
                part = self._inflater.decompress(self._pending, missing)
            except zlib.error:
                self.damage = "the gzip data is damaged"
                parts.append(_sound_part(before, self._pending, missing))
                break
            self._pending = self._inflater.unconsumed_tail
            parts.append(part)
            missing -= len(part)
        piece = b"".join(parts)
        self._refuse_bomb(self.bytes_read + len(piece))
        return piece

    def _next_member(self) -> bool:
        """Whether another gzip member follows the one that just ended; anything else behind it is padding."""
        assert self._inflater is not None
        rest = self._inflater.unused_data or self._pending
        if len(rest) < 2:
            more = self._file.read(_COMPRESSED_PIECE_BYTES)
            self._compressed_bytes += len(more)
            rest += more
        if rest[:2] != _GZIP_MAGIC:
            self._pending = b""
            return False
        self._inflater = zlib.decompressobj(_GZIP_WINDOW)
        self._pending = rest
        return True

    def _refuse_bomb(self, decompressed: int) -> None:
        if decompressed > EXPANSION_CHECKED_FROM and decompressed > MOST_EXPANSION * self._compressed_bytes:
            raise TraceError(
                f"The gzip file expands more than {MOST_EXPANSION} times, which no trace does.",
                where=str(self.path),
                remedy="Do not open it unless you know where it comes from; unpack it yourself to read it anyway.",
            )


def _sound_part(inflater: zlib._Decompress, data: bytes, most: int) -> bytes:
    """What comes out of damaged data in front of the damage."""
    parts: list[bytes] = []
    for start in range(0, len(data), _SMALL_STEP_BYTES):
        try:
            parts.append(inflater.decompress(data[start : start + _SMALL_STEP_BYTES]))
        except zlib.error:
            break
        if sum(map(len, parts)) > most:
            break
    return b"".join(parts)
