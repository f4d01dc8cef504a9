"""Source files read with their encoding, kept to the byte, and written back as a whole."""

from __future__ import annotations

import codecs
import io
import os
import tokenize
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hotlap.files import MEBIBYTE, read_bounded, replace
from hotlap.source.edits.refusals import CannotEdit

LARGEST_SOURCE_BYTES = 16 * MEBIBYTE


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file's text with its line ends as they are; ``data`` are the bytes it was read from."""

    path: Path
    text: str
    encoding: str
    data: bytes

    def encoded(self, text: str) -> bytes:
        """Another text in this file's encoding. Raises :class:`CannotEdit` for what that cannot express."""
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError:
            raise CannotEdit(
                "not-parsable", f"The file's encoding, {self.encoding}, cannot express the edit."
            ) from None


def read_source(path: Path) -> SourceFile:
    """Read a file as Python does: by its byte order mark or its coding comment, else as UTF-8.

    Raises :class:`CannotEdit` when it cannot be decoded, :class:`OSError` when it cannot be read.
    """
    data = read_bounded(path, LARGEST_SOURCE_BYTES)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise CannotEdit("not-parsable", f"The file cannot be decoded: {error}.") from None
    if text.encode(encoding) != data:
        raise CannotEdit("not-parsable", f"The file is not written as {codecs.lookup(encoding).name} writes it.")
    return SourceFile(path, text, encoding, data)


def write_all(files: dict[Path, bytes]) -> None:
    """Replace all these files, or none: each is written next to its own place first, and when a later one cannot take
    its place the earlier ones get their old content back. Permissions stay; a link's target is replaced, not the link.

    Raises :class:`OSError`, and then all files are as they were.
    """
    ready: list[tuple[Path, Path, bytes]] = []
    with ExitStack() as undo:
        for path, data in files.items():
            target = path.resolve()
            beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            undo.callback(beside.unlink, missing_ok=True)
            replace(beside, data, mode=0o600)
            beside.chmod(target.stat().st_mode & 0o7777)
            ready.append((target, beside, read_bounded(target, LARGEST_SOURCE_BYTES)))
        replaced: list[tuple[Path, bytes]] = []
        try:
            for target, beside, old in ready:
                beside.replace(target)
                replaced.append((target, old))
        except OSError:
            for target, old in replaced:
                target.write_bytes(old)
            raise
