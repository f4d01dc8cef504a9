"""The folders that rows run in, and their content before and after."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harmless.operation import Operation

AREAS = ("project", "home", "data", "shared", "tmp")
TEMPORARY = "tmp"
_SPARSE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One operation and its folders below ``top``, one in each area."""

    operation: Operation
    number: int
    top: Path

    def folder(self, area: str) -> Path:
        """That of the temporary area has a short name, as the paths of sockets are bounded."""
        return self.top / area / (str(self.number) if area == TEMPORARY else self.operation.name.replace("/", "|"))

    def as_job(self) -> dict[str, str | float]:
        """The job of ``inside.py``."""
        return {
            "name": self.operation.name,
            "code": self.operation.code,
            "longest_seconds": self.operation.longest_seconds,
            "group": self.operation.group,
            "folder": str(self.folder("project")),
            "HOME": str(self.folder("home")),
            "DATA": str(self.folder("data")),
            "SHARED": str(self.folder("shared")),
            "TMP": str(self.folder(TEMPORARY)),
        }


def make(top: Path, operations: Sequence[Operation]) -> tuple[Row, ...]:
    """Make the folders of all rows below ``top``, which is made for it. Those outside of the project are empty for
    rows whose code does not name them."""
    for area in AREAS:
        (top / area).mkdir(parents=True)
    rows = tuple(Row(operation, number, top) for number, operation in enumerate(operations))
    database = _database(top)
    for row in rows:
        _make_project(row.folder("project"), database)
        for area, fill in _FILLED.items():
            row.folder(area).mkdir()
            if _VARIABLES[area] in row.operation.code or "~" in row.operation.code:
                fill(row.folder(area))
        if row.operation.setup:
            subprocess.run(["/bin/sh", "-ec", row.operation.setup], cwd=row.folder("project"), check=True)
    return rows


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _database(top: Path) -> bytes:
    path = top / "store.db"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("create table t(a)")
        database.executemany("insert into t values (?)", [(1,), (2,)])
    content = path.read_bytes()
    path.unlink()
    return content


def _make_project(folder: Path, database: bytes) -> None:
    _write(folder / "ckpt/best.pt", "best weights " * 100)
    _write(folder / "ckpt/last.pt", "last weights " * 100)
    _write(folder / "data/train.csv", "x,y\n1,2\n3,4\n")
    with (folder / "data/big.bin").open("wb") as file:
        file.write(b"head")
        file.seek(_SPARSE_BYTES - 4)
        file.write(b"tail")
    _write(folder / "notes.txt", "first\nsecond\n")
    _write(folder / "log.txt", "begun\n")
    _write(folder / "read_only.txt", "read only\n", 0o444)
    _write(folder / "run.sh", "#!/bin/sh\necho ran\n", 0o755)
    _write(folder / "with space.txt", "spaced\n")
    _write(folder / "pair_a", "a pair\n")
    (folder / "pair_b").hardlink_to(folder / "pair_a")
    (folder / "to_notes").symlink_to("notes.txt")
    (folder / "to_data").symlink_to("data")
    (folder / "dangling").symlink_to("missing.txt")
    (folder / "loop").symlink_to("loop")
    (folder / "store.db").write_bytes(database)
    _write(folder / "tagged.txt", "tagged\n")
    os.setxattr(folder / "tagged.txt", "user.origin", b"theirs")
    _write(folder / "closed/inside.txt", "inside\n")
    (folder / "closed").chmod(0o555)


def _fill_home(folder: Path) -> None:
    _write(folder / ".config/x/settings.json", '{"theirs": true}')


def _fill_data(folder: Path) -> None:
    _write(folder / "set.csv", "a,b\n1,2\n")
    _write(folder / "models/base.bin", "base " * 50)


def _fill_shared(folder: Path) -> None:
    _write(folder / "others.txt", "of others\n")
    folder.chmod(0o1777)


def _fill_temporary(folder: Path) -> None:
    _write(folder / "theirs.txt", "theirs\n")


_FILLED: dict[str, Callable[[Path], None]] = {
    "home": _fill_home,
    "data": _fill_data,
    "shared": _fill_shared,
    TEMPORARY: _fill_temporary,
}
_VARIABLES = {"home": "HOME", "data": "DATA", "shared": "SHARED", TEMPORARY: "TMP"}


@dataclass(frozen=True, slots=True)
class Entry:
    """The properties of one file that must be the same after a trial."""

    mode: int
    inode: int
    links: int
    owner: tuple[int, int]
    size: int
    blocks: int
    modified_ns: int
    target: str
    content: str
    attributes: tuple[tuple[str, bytes], ...]


def snapshot(top: Path) -> dict[str, Entry]:
    """Every file, folder and link of the areas, by its path below ``top``."""
    found: dict[str, Entry] = {}
    pending = [area for area in AREAS if (top / area).exists()]
    while pending:
        name = pending.pop()
        path = f"{top}/{name}"
        found[name] = _entry(path)
        if stat.S_ISDIR(found[name].mode):
            pending += [f"{name}/{it}" for it in os.listdir(path)]  # noqa: PTH208 (names that are not UTF-8)
    return found


def _entry(path: str) -> Entry:
    status = os.lstat(path)
    regular = stat.S_ISREG(status.st_mode)
    return Entry(
        mode=status.st_mode,
        inode=status.st_ino,
        links=status.st_nlink,
        owner=(status.st_uid, status.st_gid),
        size=status.st_size,
        blocks=status.st_blocks,
        modified_ns=status.st_mtime_ns,
        target=os.readlink(path) if stat.S_ISLNK(status.st_mode) else "",  # noqa: PTH115
        content=_digest(path) if regular else "",
        attributes=tuple(
            (it, os.getxattr(path, it, follow_symlinks=False))
            for it in sorted(os.listxattr(path, follow_symlinks=False))
        ),
    )


def _digest(path: str) -> str:
    """Of what is written in a file; holes, which its size and blocks reveal, are passed over."""
    digest = hashlib.sha1()
    with open(path, "rb") as file:  # noqa: PTH123 (names that are not UTF-8)
        end = os.fstat(file.fileno()).st_size
        position = 0
        while position < end:
            try:
                start = os.lseek(file.fileno(), position, os.SEEK_DATA)
            except OSError as failure:
                if failure.errno != errno.ENXIO:  # nothing but a hole follows
                    raise
                break
            position = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            digest.update(f"{start}:".encode() + os.pread(file.fileno(), position - start, start))
    return digest.hexdigest()


def changes(before: dict[str, Entry], after: dict[str, Entry]) -> dict[str, str]:
    """What changed, by path, in a word or two each."""
    found = {}
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old is None or new is None:
            found[path] = "made" if old is None else "deleted"
        elif old != new:
            found[path] = ", ".join(it for it in Entry.__slots__ if getattr(old, it) != getattr(new, it))
    return found


def blamed(rows: Sequence[Row], changed: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """The changes by the name of the row in whose folders they are; those of no row under an empty name."""
    owners = {row.folder(area).relative_to(row.top).as_posix(): row.operation.name for row in rows for area in AREAS}
    found: dict[str, tuple[str, ...]] = {}
    for path, what in changed.items():
        owner = owners.get("/".join(path.split("/")[:2]), "")
        found[owner] = (*found.get(owner, ()), f"{path}: {what}")
    return found
