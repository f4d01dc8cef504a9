"""The bytes of a trace file, plain, gzip, xz or zstd, piece by piece and never more than a piece in memory."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from hotlap.errors import TraceError
from hotlap.files import open_regular
from hotlap.traces.unpacking import ENDINGS, MAGICS, Format, Unpacker, format_named, format_of

PIECE_BYTES = 2**19
"""How much decompressed text :meth:`ByteSource.read` hands out at once. The decoded events of a piece fit the
processor's caches, which saves a sixth of the time."""

MOST_EXPANSION = 200
"""Real traces shrink 10 to 60 times. DEFLATE's limit of 1032 is only reached by text without content."""

EXPANSION_CHECKED_FROM = 64 * 2**20

_COMPRESSED_PIECE_BYTES = 2**18
_LONGEST_MAGIC = max(map(len, MAGICS.values()))


class ByteSource:
    """A file's decompressed bytes in order.

    ``damage`` says, once reading ended, why compressed data ended early; it is empty for a sound file.
    ``remark`` describes what is unusual about a valid file.
    Raises :class:`TraceError` for a file that cannot be opened, is empty, is not packed as its name says, or is packed
    in a way that needs a package which is not installed.
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
            head = self._file.read(_LONGEST_MAGIC)
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
        self._format = self._format_of(head)
        self._unpacker: Unpacker | None = self._format.fresh() if self._format else None

    def __enter__(self) -> ByteSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self) -> bytes:
        """The next piece; empty at the end. Raises :class:`TraceError` when a packed file expands too much."""
        if self.damage:
            return b""
        try:
            piece = self._file.read(PIECE_BYTES) if self._unpacker is None else self._unpack(self._unpacker)
        except OSError as error:
            self.damage = f"reading the file failed: {error.strerror or error}"
            piece = b""
        self.bytes_read += len(piece)
        return piece

    def _format_of(self, head: bytes) -> Format | None:
        """The compression format by the file's first bytes; None for plain text."""
        name, claimed = format_of(head), ENDINGS.get(self.path.suffix.lower())
        if not name:
            if claimed is not None:
                self._accept_plain_text(head, claimed)
            return None
        found = format_named(name)
        if found is None:
            self._file.close()
            raise TraceError(
                f"The file is packed with {name}, and no package that unpacks it is installed.",
                where=str(self.path),
                remedy=f'Install one with `pip install "hotlap[{name}]"`, or unpack the file first (`{name} -d`).',
            )
        return found

    def _accept_plain_text(self, head: bytes, claimed: str) -> None:
        """Accept plain text under a packed name, as downloads are often unpacked; reject anything else."""
        if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
            self._file.close()
            raise TraceError(
                f"The file's name ends in {self.path.suffix} but it is no {claimed} file.",
                where=str(self.path),
                remedy="Download or export the trace again.",
            )
        self.remark = f"the name ends in {self.path.suffix} but the file is not compressed; it was read as it is"

    def _unpack(self, unpacker: Unpacker) -> bytes:
        assert self._format is not None
        parts: list[bytes] = []
        missing = PIECE_BYTES
        while missing > 0:
            if unpacker.eof:
                following = self._next_member(unpacker)
                if following is None:
                    break
                unpacker = self._unpacker = following
            if unpacker.needs_input and not self._pending:
                self._pending = self._more()
                if not self._pending:
                    self.damage = f"the {self._format.name} data stops before its end"
                    break
            data, self._pending = self._pending, b""
            try:
                part = unpacker.decompress(data, missing)
            except self._format.errors:
                self.damage = f"the {self._format.name} data is damaged"
                break
            parts.append(part)
            missing -= len(part)
        piece = b"".join(parts)
        self._refuse_bomb(self.bytes_read + len(piece))
        return piece

    def _more(self) -> bytes:
        data = self._file.read(_COMPRESSED_PIECE_BYTES)
        self._compressed_bytes += len(data)
        return data

    def _next_member(self, ended: Unpacker) -> Unpacker | None:
        """The decompressor of the member after the one that just ended; other data after it is padding."""
        assert self._format is not None
        rest = ended.unused_data + self._pending
        if len(rest) < _LONGEST_MAGIC:
            rest += self._more()
        self._pending = b""
        if format_of(rest) != self._format.name:
            return None
        self._pending = rest
        return self._format.fresh()

    def _refuse_bomb(self, decompressed: int) -> None:
        if decompressed > EXPANSION_CHECKED_FROM and decompressed > MOST_EXPANSION * self._compressed_bytes:
            assert self._format is not None
            raise TraceError(
                f"The {self._format.name} file expands more than {MOST_EXPANSION} times, which no trace does.",
                where=str(self.path),
                remedy="Do not open it unless you know where it comes from; unpack it yourself to read it anyway.",
            )
