"""Writes a project into a folder, or nothing at all."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hotlap.errors import UsageError
from hotlap.source.scaffold.compose import Task, compose


@dataclass(frozen=True, slots=True)
class Project:
    """What was written where; ``replaced`` are those of the files that had been there before."""

    directory: Path
    files: tuple[str, ...]
    replaced: tuple[str, ...]


def create(directory: Path, task: Task, *, force: bool = False, script_only: bool = False) -> Project:
    """Write the project of a task into ``directory``, which is created if it does not exist.

    Existing files are replaced only with ``force``; without it nothing is written if any of them exists. Raises
    :class:`UsageError` for that, for a name that no folder can have, and where writing fails.
    """
    _check_name(directory)
    files = compose(task)
    if script_only:
        files = {"train.py": files["train.py"]}
    # lexists: a link that leads nowhere is somebody's file too.
    present = tuple(name for name in files if os.path.lexists(directory / name))
    if present and not force:
        raise UsageError(
            f"{_listed(present)} {'exists' if len(present) == 1 else 'exist'} already; nothing was written.",
            where=str(directory),
            remedy="Name another folder, or replace what is there with --force.",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            _write(directory / name, text, force)
    except OSError as error:
        raise UsageError(
            f"The project cannot be written: {error.strerror or error}.",
            where=str(error.filename or directory),
            remedy="Name a folder that you may write to.",
        ) from error
    return Project(directory=directory, files=tuple(files), replaced=present)


def _check_name(directory: Path) -> None:
    """Raise :class:`UsageError` where the name cannot be a folder's, or is meant to be a script's."""
    name = str(directory)
    if any(not it.isprintable() for it in name):
        raise UsageError(
            f"{name!r} holds characters that cannot be shown.", remedy="Name a folder without control characters."
        )
    if directory.suffix == ".py" and not directory.is_dir():
        raise UsageError(
            f"{name!r} is the name of a script, and a folder is needed.",
            remedy=f"Name the folder: `hotlap new {directory.with_suffix('')}` writes train.py into it.",
        )
    # An existing part of the path that is a file would only be noticed after other parts were made.
    for part in (directory, *directory.parents):
        if os.path.lexists(part) and not part.is_dir():
            raise UsageError(f"{part} is not a folder.", remedy="Name a folder, or one that does not exist yet.")


def _write(path: Path, text: str, force: bool) -> None:
    """Write a file; what a link leads to is never written through."""
    if not force:
        with path.open("x", encoding="utf-8") as file:  # fails for a file that has come in between
            file.write(text)
        return
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
