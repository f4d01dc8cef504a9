"""The lines that tests ran, kept file by file, so that an interrupted run loses one file of tests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from bench.device_lines.parts import Ran


class Piece(msgspec.Struct, frozen=True):
    """What one file of tests ran, and digests of that file and of all sources that ran, by path. Lines of a failed
    file are kept and never counted: what ran without the expected result shows nothing."""

    tests: str
    passed: bool
    lines: dict[str, list[int]]
    digests: dict[str, str]


Trace = Callable[[str], tuple[bool, Ran]]
"""Run one file of tests: whether it passed, and the lines."""


def files_of_tests(root: Path, folders: Sequence[str], mention: str = "") -> list[str]:
    """The files of tests below these folders, by their path below ``root``; only those with a match of ``mention``. A
    file may stand for a folder."""
    named = [root / it for it in folders]
    found = (it for one in named for it in ([one] if one.is_file() else sorted(one.rglob("test_*.py"))))
    wanted = (it for it in found if re.search(mention, it.read_text(encoding="utf-8")))
    return [it.relative_to(root).as_posix() for it in wanted]


class Pieces:
    """A folder of pieces, about the tests and sources below ``root``."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self._root = root

    def kept(self, tests: str) -> Piece | None:
        """The piece of this file of tests; None if there is none, or if the file or a source that ran has changed."""
        try:
            piece = msgspec.json.decode(self._path(tests).read_bytes(), type=Piece)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return piece if piece.digests == self._digests(piece.digests) else None

    def complete(self, files: Sequence[str], trace: Trace, processes: int = 1) -> Iterator[Piece]:
        """The piece of each file, traced unless it is kept and passed; as many at once as ``processes``.

        Each is written once it is complete. After an interruption none is begun.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        if processes == 1:
            yield from map(partial(self._complete, trace), files)
            return
        pool = ThreadPoolExecutor(processes)
        try:
            yield from pool.map(partial(self._complete, trace), files)
        finally:
            pool.shutdown(cancel_futures=True)

    def _complete(self, trace: Trace, tests: str) -> Piece:
        piece = self.kept(tests)
        if piece is not None and piece.passed:
            return piece
        passed, ran = trace(tests)
        paths = [tests, *(f"src/hotlap/{it}" for it in ran)]
        lines = {file: sorted(of_file) for file, of_file in ran.items()}
        piece = Piece(tests, passed, lines, self._digests(paths))
        unfinished = self._path(tests).with_suffix(".part")
        unfinished.write_bytes(msgspec.json.encode(piece))
        unfinished.replace(self._path(tests))
        return piece

    def _path(self, tests: str) -> Path:
        return self._folder / f"{tests.replace('/', '-')}.json"

    def _digests(self, paths: Sequence[str] | dict[str, str]) -> dict[str, str]:
        files = {it: self._root / it for it in paths}
        return {it: hashlib.sha256(path.read_bytes()).hexdigest() for it, path in files.items() if path.is_file()}


def ranges(lines: Sequence[int]) -> str:
    """Line numbers as ``3-5, 9``."""
    found: list[list[int]] = []
    for it in sorted(lines):
        if found and it == found[-1][1] + 1:
            found[-1][1] = it
        else:
            found.append([it, it])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in found)
