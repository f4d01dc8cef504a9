"""Copies of the user's source tree: one as it was at a commit, one as it is now.

The tree itself is only read. What git tracks is copied, since Python follows links when it looks for modules next to a
script; what git does not track (data, outputs, virtual environments) is linked to, so that both copies see the same
files at the same places. Trials write to neither, as everywhere.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import msgspec

from hotlap.errors import HotlapError, UsageError
from hotlap.records import Checkout, Workload
from hotlap.trial.git import git, paths
from hotlap.trial.source import script_of

_CHECKOUT_LIMIT_SECONDS = 600.0
_NEVER_LINKED = frozenset({".git", ".hotlap", "__pycache__"})
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_LINK, _SUBMODULE = "120000", "160000"
_ROOM = 1.1


@dataclass(frozen=True, slots=True)
class Repository:
    """A work tree and a commit in it."""

    top: Path
    commit: str


def find_commit(workload: Workload, revision: str) -> Repository:
    """The work tree of the workload's script, and the commit that ``revision`` names there.

    Raises :class:`UsageError` where there is no such tree or commit.
    """
    script = script_of(workload)
    start = script.parent if script is not None and script.parent.is_dir() else Path(workload.directory)
    try:
        top = Path(os.fsdecode(git(start, "rev-parse", "--show-toplevel").rstrip(b"\n")))
    except HotlapError as error:
        raise UsageError(
            f"{start} is in no git work tree that can be read. {error.what}",
            remedy="Name a plan or a study as the baseline, or start where the script's repository is.",
        ) from None
    commit = _commit(top, revision)
    if commit is None:
        shallow = git(top, "rev-parse", "--is-shallow-repository").strip() == b"true"
        fetch = "This clone is shallow: fetch the whole history (in GitHub Actions `fetch-depth: 0`), or c"
        raise UsageError(
            f"There is no git revision {revision!r} in {top}.",
            remedy=f"{fetch if shallow else 'C'}heck its name; `git log --oneline` lists some.",
        )
    return Repository(top, commit)


def is_commit(directory: Path, revision: str) -> bool:
    """Whether that names a commit in the repository of the directory."""
    return _commit(directory, revision) is not None


def _commit(directory: Path, revision: str) -> str | None:
    if revision.startswith("-"):  # it would be an option
        return None
    try:
        return git(directory, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode("ascii").strip()
    except HotlapError:
        return None


def before_and_now(repository: Repository, workload: Workload, folder: Path) -> tuple[Workload, Workload]:
    """The workload as it was at the commit and as it is now, each in a copy of its own below ``folder``.

    Raises :class:`UsageError` where the script did not exist at the commit or is outside the work tree, and
    :class:`HotlapError` when a copy cannot be made.
    """
    _check_room(repository, folder)
    before, now = folder / "before", folder / "now"
    try:
        for copy in (before, now):
            copy.mkdir()
        _copy_commit(repository, before, folder / "index")
        _copy_tree(repository.top, now)
        for path in paths(git(repository.top, "ls-files", "-z", "--others", "--directory")):
            for copy in (before, now):
                _link(repository.top / path, copy / path)
        workloads = [
            moved(workload, repository.top, copy, commit) for copy, commit in ((before, repository.commit), (now, ""))
        ]
    except OSError as error:
        raise HotlapError(
            f"The source tree cannot be copied: {error.strerror or error}.",
            where=str(error.filename or folder),
            remedy="Free some space in the temporary directory, or set TMPDIR to a larger one.",
        ) from error
    return workloads[0], workloads[1]


# ---------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------


def _check_room(repository: Repository, folder: Path) -> None:
    """Raises :class:`HotlapError` when the copies would not fit."""
    listed = paths(git(repository.top, "ls-tree", "-r", "-l", "-z", repository.commit))
    sizes = [line.partition("\t")[0].split()[-1] for line in listed]
    needed = 2 * _ROOM * sum(int(it) for it in sizes if it.isdecimal())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise HotlapError(
            f"Two copies of {repository.top} need {needed / 2**20:.0f} MiB; there are {free / 2**20:.0f} MiB.",
            where=str(folder.parent),
            remedy="Free some space there, or set TMPDIR to a larger directory.",
        )


def _copy_commit(repository: Repository, copy: Path, index: Path) -> None:
    """Export what git tracked at the commit, through an index of our own."""
    own = {"GIT_INDEX_FILE": str(index)}
    git(repository.top, "read-tree", repository.commit, limit_seconds=_CHECKOUT_LIMIT_SECONDS, variables=own)
    words = ("checkout-index", "--all", "--quiet", f"--prefix={copy}/")
    git(repository.top, *words, limit_seconds=_CHECKOUT_LIMIT_SECONDS, variables=own)
    staged = git(repository.top, "ls-files", "-z", "--stage", variables=own)
    _repair(repository.top, copy, _entries(staged))


def _copy_tree(top: Path, copy: Path) -> None:
    """What git tracks now, with the changes that were not committed."""
    entries = list(_entries(git(top, "ls-files", "-z", "--stage")))
    for _, path in entries:
        original, target = top / path, copy / path
        try:
            mode = original.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):  # deleted, and not yet committed
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISLNK(mode):
            target.symlink_to(original.readlink())
        elif stat.S_ISREG(mode):
            shutil.copy2(original, target)
    _repair(top, copy, entries)


def _entries(staged: bytes) -> Iterator[tuple[str, str]]:
    """Mode and path of each entry of an index; a conflict's path comes once."""
    seen = set()
    for line in paths(staged):
        head, _, path = line.partition("\t")
        if path not in seen:
            seen.add(path)
            yield head.split()[0], path


def _repair(top: Path, copy: Path, entries: Iterable[tuple[str, str]]) -> None:
    """Links that lead out of the tree must lead to the same place from the copy, and a submodule, whose files belong to
    another repository, is linked to as it is now."""
    for mode, path in entries:
        target = copy / path
        if mode == _SUBMODULE:
            if target.is_dir() and not any(target.iterdir()):
                target.rmdir()
            _link(top / path, target)
        elif mode == _LINK and target.is_symlink():
            leads_to = os.path.normpath(top / path / ".." / target.readlink())
            if not target.readlink().is_absolute() and not Path(leads_to).is_relative_to(top):
                target.unlink()
                target.symlink_to(leads_to)


def _link(original: Path, target: Path) -> None:
    """Make ``target`` lead to the original, file by file where both have the directory."""
    if original.name in _NEVER_LINKED or not os.path.lexists(original):
        return
    if not os.path.lexists(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(original)
    elif target.is_dir() and not target.is_symlink() and original.is_dir():
        for entry in sorted(original.iterdir()):
            _link(entry, target / entry.name)


# ---------------------------------------------------------------------------------------------
# The workload in a copy
# ---------------------------------------------------------------------------------------------


def moved(workload: Workload, top: Path, copy: Path, revision: str) -> Workload:
    """The workload with its directory, its script and its Python files in the copy instead of the tree. Other absolute
    paths stay: they name the same data for both."""
    directory = Path(workload.directory)
    moved_directory = _in_copy(directory, top, copy) or directory
    moved_directory.mkdir(parents=True, exist_ok=True)
    target = workload.target
    if workload.kind == "script":
        target = _moved_script(workload, moved_directory, top, copy, revision)
    arguments = tuple(_moved_argument(it, top, copy) for it in workload.arguments)
    checkout = Checkout(
        original=str(top), copy=str(copy), revision=revision, python_path=tuple(_python_path(workload, top, copy))
    )
    return msgspec.structs.replace(
        workload, target=target, arguments=arguments, directory=str(moved_directory), checkout=checkout
    )


def _moved_script(workload: Workload, moved_directory: Path, top: Path, copy: Path, revision: str) -> str:
    named = Path(os.path.normpath(Path(workload.directory) / workload.target))
    moved = _in_copy(named, top, copy) or _in_copy(named.resolve(), top, copy)
    if moved is None:
        raise UsageError(
            f"The script {named} is outside of the git work tree {top}.",
            remedy="Name a script of this repository, or compare with a plan or a study.",
        )
    if not moved.exists() or (revision and not moved.resolve().is_relative_to(copy)):  # a link: git does not track it
        raise UsageError(
            f"At {revision[:12] or 'present'} there is no {moved.relative_to(copy)} that git tracks.",
            remedy="Name a revision that contains the script.",
        )
    as_typed = not Path(workload.target).is_absolute() and moved_directory.resolve().is_relative_to(copy)
    return workload.target if as_typed else str(moved)


def _moved_argument(argument: str, top: Path, copy: Path) -> str:
    """A launcher's script, where it is named by its absolute path."""
    moved = _in_copy(Path(argument), top, copy) if argument.startswith("/") and argument.endswith(".py") else None
    return str(moved) if moved is not None and moved.exists() else argument


def _in_copy(path: Path, top: Path, copy: Path) -> Path | None:
    return copy / path.relative_to(top) if path.is_relative_to(top) else None


def _python_path(workload: Workload, top: Path, copy: Path) -> Iterator[str]:
    """Where the copy holds what our interpreter would import from the tree: packages that are installed in place. Of
    another interpreter than ours that is not known."""
    if workload.python != sys.executable:
        return
    given = {*os.environ.get("PYTHONPATH", "").split(os.pathsep), "", workload.directory}
    found = [Path(it) for it in sys.path if it not in given]
    found += [it / "src" for it in _installed_in_place()]
    for path in dict.fromkeys(found):
        moved = _in_copy(path, top, copy)
        if moved is not None and moved.is_dir() and _INSTALLED.isdisjoint(path.parts) and moved != copy:
            yield str(moved)


def _installed_in_place() -> Iterator[Path]:
    """The project folders of packages that were installed with ``pip install -e``."""
    for distribution in distributions():
        text = distribution.read_text("direct_url.json") or "{}"
        try:
            found = msgspec.json.decode(text, type=_DirectUrl)
        except msgspec.MsgspecError:
            continue
        if found.dir_info.editable and found.url.startswith("file://"):
            yield Path(found.url.removeprefix("file://"))


class _DirectoryInfo(msgspec.Struct, frozen=True):
    editable: bool = False


class _DirectUrl(msgspec.Struct, frozen=True):
    """Where a package came from, as pip records it (PEP 610)."""

    url: str = ""
    dir_info: _DirectoryInfo = _DirectoryInfo()
