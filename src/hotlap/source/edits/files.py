"""Read source files with their encoding, keep them to the byte, and replace them atomically."""

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
    """A file's text with its original line ends; ``data`` are the bytes it was read from."""

    path: Path
    text: str
    encoding: str
    data: bytes

    def encoded(self, text: str) -> bytes:
        """Encode a text as this file is. Raises :class:`CannotEdit` for inexpressible characters."""
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
        raise CannotEdit("not-parsable", f"The file's bytes are not canonical {codecs.lookup(encoding).name}.")
    return SourceFile(path, text, encoding, data)


def write_all(files: dict[Path, bytes]) -> None:
    """Replace all these files, or none.

    Each is written next to its target first; if a later replacement fails, earlier files get their old content
    back. Permissions stay; a link's target is replaced, not the link.

    Raises :class:`OSError`; then all files are unchanged.
    """
    ready: list[tuple[Path, Path, bytes]] = []
    with ExitStack() as undo:
        for path, data in files.items():
            target = path.resolve()
            temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            undo.callback(temporary.unlink, missing_ok=True)
            replace(temporary, data, mode=0o600)
            temporary.chmod(target.stat().st_mode & 0o7777)
            ready.append((target, temporary, read_bounded(target, LARGEST_SOURCE_BYTES)))
        replaced: list[tuple[Path, bytes]] = []
        try:
            for target, temporary, old in ready:
                temporary.replace(target)
                replaced.append((target, old))
        except OSError:
            for target, old in replaced:
                target.write_bytes(old)
            raise
