"""Performs file operations that it reads as JSON lines, with or without redirection, and prints the results.

``file_operations_child.py OVERLAY DIRECTORY``; the overlay ``-`` means: without redirection.
"""

# Every function there is shall be called here, not only those of pathlib.
# ruff: noqa: PTH105, PTH108, PTH110, PTH112, PTH113, PTH114, PTH120, PTH123, PTH202, PTH207, PTH208
from __future__ import annotations

import glob
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

if sys.argv[1] != "-":
    from hotlap.runtime.files import redirect_writes

    redirect_writes(Path(sys.argv[1]), passthrough=())


def write(path: str, mode: str, text: str) -> int:
    with open(path, mode) as file:
        return file.write(text)


def read(path: str) -> str:
    with open(path) as file:
        assert file.name == path
        return file.read()


def save_atomically(path: str, text: str) -> None:
    directory = os.path.dirname(path) or "."
    descriptor, temporary = tempfile.mkstemp(dir=directory)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def open_low(path: str, flags: int, text: str) -> None:
    descriptor = os.open(path, flags, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def remove_in_open_directory(directory: str, name: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def describe(path: str) -> list[Any]:
    facts: list[Any] = [os.path.exists(path), os.path.isdir(path), os.path.isfile(path), os.path.islink(path)]
    facts.append(os.path.getsize(path) if os.path.isfile(path) else None)
    facts.append(os.access(path, os.R_OK))
    return facts


def kind_of(entry: os.DirEntry[str]) -> list[Any]:
    try:
        return [entry.name, entry.is_symlink(), entry.is_dir(), entry.is_file()]
    except OSError as failure:  # a link that leads to itself
        return [entry.name, failure.errno]


def look_around() -> dict[str, Any]:
    """All that can be seen from here, by several ways that must agree."""
    walked = sorted([top, sorted(directories), sorted(files)] for top, directories, files in os.walk("."))
    kinds = {}
    for top, _, _ in walked:
        with os.scandir(top) as entries:  # type: ignore[call-overload]
            kinds[top] = sorted(kind_of(entry) for entry in entries)
    contents = {}
    for path in sorted(map(str, Path().rglob("*"))):
        contents[path] = Path(path).read_text() if os.path.isfile(path) else os.path.isdir(path)
    return {
        "walked": walked,
        "descended": sorted([top, sorted(d), sorted(f)] for top, d, f, _ in os.fwalk(".")),
        "kinds": kinds,
        "contents": contents,
        "globbed": sorted(glob.glob("**", recursive=True)),
        "listed": sorted(os.listdir()),
    }


OPERATIONS: dict[str, Callable[..., Any]] = {
    "write": write,
    "read": read,
    "open_low": open_low,
    "save_atomically": save_atomically,
    "remove_in_open_directory": remove_in_open_directory,
    "describe": describe,
    "look_around": look_around,
    "remove": os.remove,
    "rmdir": os.rmdir,
    "rmtree": shutil.rmtree,
    "mkdir": os.mkdir,
    "makedirs": os.makedirs,
    "rename": os.rename,
    "replace": os.replace,
    "move": shutil.move,
    "copy": shutil.copy2,
    "copytree": shutil.copytree,
    "symlink": os.symlink,
    "link": os.link,
    "readlink": os.readlink,
    "truncate": os.truncate,
    "chdir": os.chdir,
    "touch": lambda path: Path(path).touch(),
    "listdir": lambda path: sorted(os.listdir(path)),
    "realpath": lambda path: os.path.relpath(os.path.realpath(path), os.environ["TOP"]),
}


def perform(name: str, arguments: list[Any]) -> list[Any]:
    try:
        return ["did", OPERATIONS[name](*arguments)]
    except shutil.Error as failure:
        return ["failed", type(failure).__name__, ""]
    except OSError as failure:
        named = str(failure.filename or "")
        # A temporary name is drawn at random, and an absolute one begins differently with each tree.
        return ["failed", type(failure).__name__, failure.errno, "" if "tmp" in named or named[:1] == "/" else named]


if __name__ == "__main__":
    for line in sys.stdin:
        top, name, arguments = json.loads(line)
        if name == "begin":
            os.environ["TOP"] = top
            os.chdir(top)
            print(json.dumps(["did", None]), flush=True)
        else:
            print(json.dumps(perform(name, arguments)), flush=True)
