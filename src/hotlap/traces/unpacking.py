"""Decompressors by the first bytes of a file: gzip, xz and zstd, each handing out no more than it is asked for.

``lzma`` and ``zstd`` (of Python 3.14, or the package ``backports.zstd``) have the same interface; :class:`Inflater`
gives it to ``zlib``, which keeps what comes before damaged data.
"""

from __future__ import annotations

import importlib
import lzma
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

MAGICS = {"gzip": b"\x1f\x8b", "xz": b"\xfd7zXZ\x00", "zstd": b"\x28\xb5\x2f\xfd"}
ENDINGS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd", ".zstd": "zstd"}

_MOST_XZ_MEMORY_BYTES = 256 * 2**20
"""xz's strongest setting takes 65 MiB; a file may ask for 4 GiB. zstd refuses windows above 128 MiB by itself."""

_GZIP_WINDOW = 31
_SMALL_STEP_BYTES = 64
_ZSTD_MODULES = ("compression.zstd", "backports.zstd")


class Unpacker(Protocol):
    """The common interface of the standard library's decompressors."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """At most so many bytes of what the data, and data kept from before, unpack to."""
        ...


class Format(NamedTuple):
    """How to unpack a kind of file: a fresh decompressor for each member, and what it raises for damaged data."""

    name: str
    fresh: Callable[[], Unpacker]
    errors: tuple[type[Exception], ...]


class Inflater:
    """``zlib`` for gzip files. Damaged data raises ``zlib.error`` once what comes before it was handed out."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(_GZIP_WINDOW)
        self._pending = b""
        self._damage: zlib.error | None = None

    @property
    def eof(self) -> bool:
        return self._inflater.eof

    @property
    def needs_input(self) -> bool:
        return not self._pending and self._damage is None

    @property
    def unused_data(self) -> bytes:
        return self._inflater.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """At most so many bytes of what the data, and data kept from before, inflate to."""
        if self._damage is not None:
            raise self._damage
        data = self._pending + data
        before = self._inflater.copy()
        try:
            part = self._inflater.decompress(data, max_length)
        except zlib.error as error:
            self._damage, self._pending = error, b""
            return _intact_part(before, data, max_length)
        self._pending = self._inflater.unconsumed_tail
        return part


def format_of(head: bytes) -> str:
    """The format that a file begins as; empty for none of them."""
    return next((name for name, magic in MAGICS.items() if head.startswith(magic)), "")


def format_named(name: str) -> Format | None:
    """The format of that name; None where this Python has nothing that unpacks it."""
    if name == "gzip":
        return Format(name, Inflater, (zlib.error,))
    if name == "xz":
        return Format(name, lambda: lzma.LZMADecompressor(memlimit=_MOST_XZ_MEMORY_BYTES), (lzma.LZMAError,))
    module = _zstd()
    return Format(name, module.ZstdDecompressor, (module.ZstdError,)) if module is not None else None


def _zstd() -> Any:
    for name in _ZSTD_MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _intact_part(inflater: zlib._Decompress, data: bytes, most: int) -> bytes:
    """Unpack damaged data up to the damage."""
    parts: list[bytes] = []
    for start in range(0, len(data), _SMALL_STEP_BYTES):
        try:
            parts.append(inflater.decompress(data[start : start + _SMALL_STEP_BYTES]))
        except zlib.error:
            break
        if sum(map(len, parts)) > most:
            break
    return b"".join(parts)
