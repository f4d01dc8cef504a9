"""Replacements for ``open`` and the functions of :mod:`os` during a trial.

Each stand-in resolves a path through the overlay and calls the original with the result. They are objects rather than
functions, because a function in a class body becomes a method, and the built-in originals do not; they pickle as the
name they replace. Calls with a file descriptor go straight to the original.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from threading import get_ident
from types import TracebackType
from typing import Any, ClassVar

from hotlap.runtime.originals import io, posix
from hotlap.runtime.overlay import WRITE_FLAGS, Overlay

_TEMPORARY = getattr(os, "O_TMPFILE", None)
_READ_MODES = frozenset({"r", "rb", "rt", "br", "tr"})


class StandIn:
    """Base: one original and the overlay it is redirected by."""

    module: ClassVar[str] = "os"

    def __init__(self, original: Callable[..., Any], overlay: Overlay) -> None:
        functools.update_wrapper(self, original)
        self.__module__ = self.module
        self._original = original
        self._overlay = overlay

    @property
    def overlay(self) -> Overlay:
        return self._overlay

    def __reduce__(self) -> str:
        return str(self._original.__name__)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        raise NotImplementedError

    def _path(self, path: Any, directory: int | None = None) -> str:
        """The path as text, relative to the directory that is open as ``directory``, if any."""
        text: str = path if path.__class__ is str else os.fsdecode(path)
        if directory is None or text.startswith("/"):
            return text
        return f"{self._overlay.path_of(directory)}/{text}"


def _naming(failure: OSError, path: Any, other: Any = None) -> OSError:
    """The error with the names that the script used instead of those of the study's copies."""
    failure.filename = path
    if other is not None:
        failure.filename2 = other
    return failure


class Open(StandIn):
    """``open``. The original parses the mode and gets an opener that redirects, so that the file's ``name`` is the
    path that the script gave. ``threads_inside`` tells the audit hook that this open has been seen to."""

    module = "builtins"

    def __init__(self, overlay: Overlay, open_descriptor: Callable[[Any, int, int], int]) -> None:
        super().__init__(io.open, overlay)
        self.__name__ = "open"
        self._by_descriptor = open_descriptor
        self.threads_inside: set[int] = set()

    def __reduce__(self) -> str:
        return "open"

    def __call__(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Callable[[str, int], int] | None = None,
    ) -> Any:
        if opener is not None or not isinstance(file, (str, bytes, os.PathLike)):
            return io.open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        text = file if file.__class__ is str else os.fsdecode(file)
        if mode in _READ_MODES and self._overlay.is_same_as_below(text):
            return io.open(file, mode, buffering, encoding, errors, newline, closefd)
        with self.seen_to():
            return io.open(file, mode, buffering, encoding, errors, newline, closefd, self.open_descriptor)

    @contextlib.contextmanager
    def seen_to(self) -> Iterator[None]:
        """Mark this thread: what it opens inside the block is already redirected."""
        thread = get_ident()
        outermost = thread not in self.threads_inside
        self.threads_inside.add(thread)
        try:
            yield
        finally:
            if outermost:
                self.threads_inside.discard(thread)

    def open_descriptor(self, path: Any, flags: int) -> int:
        return self._by_descriptor(path, flags, 0o666)


class OpenDescriptor(StandIn):
    """``os.open``."""

    def __call__(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        text = self._path(path, dir_fd)
        anonymous = _TEMPORARY is not None and flags & _TEMPORARY == _TEMPORARY
        try:
            if anonymous:
                return posix.open(self._overlay.for_writing_into(text), flags, mode)
            if flags & WRITE_FLAGS:
                return posix.open(self._overlay.for_writing(text, flags), flags, mode)
            if self._overlay.is_same_as_below(text):
                return posix.open(text, flags, mode)
            follow = not flags & getattr(os, "O_NOFOLLOW", 0)
            return posix.open(self._overlay.locate(text, follow=follow), flags, mode)
        except OSError as failure:
            raise _naming(failure, path) from None


class Status(StandIn):
    """``os.stat`` and ``os.lstat``, with a fast path since they are called very often."""

    def __init__(self, original: Callable[..., Any], overlay: Overlay, *, follow: bool) -> None:
        super().__init__(original, overlay)
        self._follow = follow

    def __call__(self, path: Any, *, dir_fd: int | None = None, follow_symlinks: bool | None = None) -> os.stat_result:
        if isinstance(path, int):
            return posix.stat(path)
        text = self._path(path, dir_fd)
        follow = self._follow if follow_symlinks is None else follow_symlinks
        try:
            if self._overlay.is_untouched(text):
                status = posix.lstat(text)
                if not follow or not stat.S_ISLNK(status.st_mode):
                    return status
            return self._overlay.status(text, follow=follow)
        except OSError as failure:
            raise _naming(failure, path) from None


class Reading(StandIn):
    """Functions that read one path: ``access``, ``readlink``, ``statvfs``, ``getxattr``, ``listxattr``."""

    def __init__(self, original: Callable[..., Any], overlay: Overlay, *, follow: bool = True) -> None:
        super().__init__(original, overlay)
        self._follow = follow

    def __call__(self, path: Any, *arguments: Any, dir_fd: int | None = None, **keywords: Any) -> Any:
        if isinstance(path, int):
            return self._original(path, *arguments, **keywords)
        try:
            return self._look(path, self._path(path, dir_fd), arguments, keywords)
        except OSError as failure:
            raise _naming(failure, path) from None

    def _look(self, path: Any, text: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        follow = self._follow and keywords.get("follow_symlinks", True)
        place = text if self._overlay.is_same_as_below(text) else self._overlay.locate(text, follow=follow)
        found = self._original(os.fsencode(place) if isinstance(path, bytes) else place, *arguments, **keywords)
        return found


class Access(Reading):
    """``os.access``, which returns ``False`` where others raise."""

    def __call__(self, path: Any, *arguments: Any, dir_fd: int | None = None, **keywords: Any) -> Any:
        try:
            return super().__call__(path, *arguments, dir_fd=dir_fd, **keywords)
        except OSError:
            return False


class Changing(Reading):
    """Functions that change the length, mode, owner, times or attributes of a path or an open file."""

    def __call__(self, path: Any, *arguments: Any, dir_fd: int | None = None, **keywords: Any) -> Any:
        if isinstance(path, int):
            place = self._overlay.behind(path)
            return self._original(path if place is None else place, *arguments, **keywords)
        return super().__call__(path, *arguments, dir_fd=dir_fd, **keywords)

    def _look(self, path: Any, text: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        follow = self._follow and keywords.get("follow_symlinks", True)
        return self._original(self._overlay.for_change(text, follow=follow), *arguments, **keywords)


class ChangingOpen(StandIn):
    """``fchmod`` and ``fchown``."""

    def __call__(self, fd: int, *arguments: Any, **keywords: Any) -> Any:
        place = self._overlay.behind(fd)
        if place is None:
            return self._original(fd, *arguments, **keywords)
        return getattr(posix, self._original.__name__[1:])(place, *arguments, **keywords)


class Attributes(Reading):
    """``getxattr`` and ``listxattr``."""

    def _look(self, path: Any, text: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self._overlay.is_same_as_below(text):
            return self._original(text, *arguments, **keywords)
        follow = keywords.get("follow_symlinks", True)
        return self._original(self._overlay.locate_properties(text, follow=follow), *arguments, **keywords)


class Making(StandIn):
    """``mkfifo`` and ``mknod``."""

    def __call__(self, path: Any, *arguments: Any, dir_fd: int | None = None, **keywords: Any) -> Any:
        try:
            return self._original(self._overlay.for_making(self._path(path, dir_fd)), *arguments, **keywords)
        except OSError as failure:
            raise _naming(failure, path) from None


class MakeDirectory(StandIn):
    def __call__(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        try:
            self._overlay.make_directory(self._path(path, dir_fd), mode)
        except OSError as failure:
            raise _naming(failure, path) from None


class Removing(StandIn):
    """``remove``, ``unlink`` and ``rmdir``."""

    def __call__(self, path: Any, *, dir_fd: int | None = None) -> None:
        text = self._path(path, dir_fd)
        try:
            if self._original is posix.rmdir:
                self._overlay.remove_directory(text)
            else:
                self._overlay.remove(text)
        except OSError as failure:
            raise _naming(failure, path) from None


class Renaming(StandIn):
    """``rename`` and ``replace``, which are the same on POSIX."""

    def __call__(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        try:
            self._overlay.rename(self._path(src, src_dir_fd), self._path(dst, dst_dir_fd))
        except OSError as failure:
            raise _naming(failure, src, dst) from None


class Linking(StandIn):
    def __call__(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        try:
            source, target = self._path(src, src_dir_fd), self._path(dst, dst_dir_fd)
            # Without directory descriptors the original is link(2), which never follows a link on Linux.
            follows = sys.platform == "darwin" or src_dir_fd is not None or dst_dir_fd is not None
            self._overlay.link(source, target, follow=follow_symlinks and follows)
        except OSError as failure:
            raise _naming(failure, src, dst) from None


class SymbolicLinking(StandIn):
    def __call__(self, src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None) -> None:
        try:
            self._overlay.symlink(os.fsdecode(src), self._path(dst, dir_fd))
        except OSError as failure:
            raise _naming(failure, src, dst) from None


class ListDirectory(StandIn):
    def __call__(self, path: Any = ".") -> list[Any]:
        given = "." if path is None else path
        text = self._overlay.path_of(given) if isinstance(given, int) else os.fsdecode(given)
        try:
            if self._overlay.is_untouched(f"{text}/x"):
                return posix.listdir(path)
            names = self._overlay.names(text)
        except OSError as failure:
            raise _naming(failure, path) from None
        return [os.fsencode(name) for name in names] if isinstance(given, bytes) else names


class ScanDirectory(StandIn):
    """``os.scandir``: the original for directories without writes, else entries of our own."""

    def __call__(self, path: Any = ".") -> Any:
        given = "." if path is None else path
        text = self._overlay.path_of(given) if isinstance(given, int) else os.fsdecode(given)
        try:
            if self._overlay.is_untouched(f"{text}/x"):
                return posix.scandir(path)
            names = self._overlay.names(text)
        except OSError as failure:
            raise _naming(failure, path) from None
        prefix = "" if isinstance(given, int) else os.path.join(text, "")  # noqa: PTH118 - as os.scandir joins
        entries = (Entry(name, prefix + name, f"{text}/{name}", self._overlay) for name in names)
        if isinstance(given, bytes):
            return Entries(entry.as_bytes() for entry in entries)
        return Entries(entries)


class Entry:
    """What ``os.scandir`` yields (:class:`os.DirEntry`, which cannot be made by hand)."""

    def __init__(self, name: Any, path: Any, place: str, overlay: Overlay) -> None:
        self.name = name
        self.path = path
        self._place = place
        self._overlay = overlay

    def as_bytes(self) -> Entry:
        return Entry(os.fsencode(self.name), os.fsencode(self.path), self._place, self._overlay)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        try:
            return self._overlay.status(self._place, follow=follow_symlinks)
        except OSError as failure:
            raise _naming(failure, self.path) from None

    def _mode(self, *, follow_symlinks: bool) -> int:
        try:
            return self.stat(follow_symlinks=follow_symlinks).st_mode
        except FileNotFoundError:
            return 0

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self._mode(follow_symlinks=follow_symlinks))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISREG(self._mode(follow_symlinks=follow_symlinks))

    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self._mode(follow_symlinks=False))

    def is_junction(self) -> bool:
        return False

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class Entries:
    """The iterator of ``os.scandir``, which is also a context manager."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


class ChangeDirectory(StandIn):
    """``chdir`` and ``fchdir``."""

    def __call__(self, path: Any) -> None:
        try:
            text = self._overlay.path_of(path) if isinstance(path, int) else os.fsdecode(path)
            self._overlay.change_directory(text)
        except OSError as failure:
            raise _naming(failure, path) from None


class WorkingDirectory(StandIn):
    """``getcwd`` and ``getcwdb``."""

    def __call__(self) -> Any:
        path = self._overlay.working_directory()
        return os.fsencode(path) if self._original is posix.getcwdb else path


def stand_ins(overlay: Overlay) -> dict[Any, Any]:
    """Each original with its stand-in, without originals that this platform lacks."""
    opening = OpenDescriptor(posix.open, overlay)
    found: dict[Any, Any] = {
        io.open: Open(overlay, opening),
        posix.open: opening,
        posix.stat: Status(posix.stat, overlay, follow=True),
        posix.lstat: Status(posix.lstat, overlay, follow=False),
        posix.access: Access(posix.access, overlay),
        posix.mkdir: MakeDirectory(posix.mkdir, overlay),
        posix.link: Linking(posix.link, overlay),
        posix.symlink: SymbolicLinking(posix.symlink, overlay),
        posix.listdir: ListDirectory(posix.listdir, overlay),
        posix.scandir: ScanDirectory(posix.scandir, overlay),
    }
    kinds: tuple[tuple[str, Callable[[Any, Overlay], StandIn]], ...] = (
        ("readlink", functools.partial(Reading, follow=False)),
        ("statvfs pathconf", Reading),
        ("getxattr listxattr", Attributes),
        ("fchmod fchown", ChangingOpen),
        ("truncate chmod chown utime setxattr removexattr chflags", Changing),
        ("lchmod lchown lchflags", functools.partial(Changing, follow=False)),
        ("mkfifo mknod", Making),
        ("remove unlink rmdir", Removing),
        ("rename replace", Renaming),
        ("chdir fchdir", ChangeDirectory),
        ("getcwd getcwdb", WorkingDirectory),
    )
    for names, kind in kinds:
        for name in names.split():
            original = getattr(posix, name, None)
            if original is not None:
                found[original] = kind(original, overlay)
    return found
