"""Files as the engine reads them: one Python text, and its mapping back to the file.

A script is its own text. A notebook's code cells are put together in order (:mod:`hotlap.source.lint.notebooks`).
"""

from __future__ import annotations

import codecs
import io
import os
import tempfile
import tokenize
from pathlib import Path
from typing import Protocol

from hotlap import files
from hotlap.source.lint.check import Unreadable

LARGEST_SCRIPT_BYTES = 5_000_000
LARGEST_NOTEBOOK_BYTES = 100_000_000
"""The limit for notebooks, which contain pictures; their code has the limit of scripts."""


class Document(Protocol):
    """One text of Python that came from a file."""

    text: str

    def whereabouts(self, line: int) -> tuple[int | None, int]:
        """The notebook's cell, if any, and the line within it, both from 1, for a line of the text."""

    def rewritten(self, text: str) -> bytes:
        """The file with another text. Raises :class:`Unreadable` if it cannot be mapped back."""


class Script:
    """A Python file. Its encoding, byte order mark and line ends are preserved."""

    def __init__(self, source: bytes) -> None:
        self._mark = source.startswith(codecs.BOM_UTF8)
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
            self._encoding = "utf-8" if encoding == "utf-8-sig" else encoding
            self.text = source.removeprefix(codecs.BOM_UTF8).decode(self._encoding)
        except (SyntaxError, LookupError) as error:
            raise Unreadable(f"Its encoding is unknown: {error}.") from None
        except UnicodeDecodeError as error:
            raise Unreadable(f"It is not {error.encoding} text: byte {error.start} cannot be decoded.") from None
        if "\0" in self.text:
            raise Unreadable("It contains null bytes, so it is not Python source.")

    def whereabouts(self, line: int) -> tuple[int | None, int]:
        """As in :class:`Document`: a script has no cells."""
        return None, line

    def rewritten(self, text: str) -> bytes:
        """As in :class:`Document`."""
        try:
            return (codecs.BOM_UTF8 if self._mark else b"") + text.encode(self._encoding)
        except UnicodeEncodeError:
            raise Unreadable(f"The fixed file could not be written as {self._encoding}.") from None


def read_bounded(path: Path) -> bytes:
    """Read a file. Raises :class:`Unreadable` if it is unreadable, not a file, or too large."""
    largest = LARGEST_NOTEBOOK_BYTES if path.suffix == ".ipynb" else LARGEST_SCRIPT_BYTES
    try:
        return files.read_bounded(path, largest)
    except FileNotFoundError:
        raise Unreadable("It does not exist.") from None
    except files.NotRegularError:
        raise Unreadable("It is not a regular file.") from None
    except files.TooLargeError:
        raise Unreadable(f"It is larger than {largest // 1_000_000} MB and was not read.") from None
    except OSError as error:
        raise Unreadable(f"It cannot be read: {error.strerror or error}.") from None


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically, with the same permissions. Raises :class:`Unreadable`."""
    target = path.resolve()
    try:
        mode = target.stat().st_mode & 0o7777
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            temporary.chmod(mode)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise Unreadable(f"The fixed file cannot be written: {error.strerror or error}.") from None
