"""The script's view of the file system: two trees as one.

The *lower* tree is the user's and never changes; the *upper* tree is in the study and holds what the script wrote. A
name in the upper tree hides the same name in the lower one, and a *marker* in the upper tree hides a deleted name (as
in overlayfs and aufs, see Documentation/filesystems/overlayfs.rst of the Linux kernel). Markers are never removed: a
name that is created again exists in the upper tree, whatever its marker.

This module calls the functions of :mod:`posix`, since those of :mod:`os` are redirected. All state that several
processes share is on disk; a shared number shows each of them when its cache is out of date. Nothing is locked, so that
a fork at any moment leaves no lock behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import re
import stat
import sys
from collections.abc import Mapping
from errno import EDQUOT, ELOOP, ENAMETOOLONG, ENOENT, ENOSPC, ENOTDIR
from typing import TypeAlias

from hotlap.runtime.file_copies import error, status_of
from hotlap.runtime.originals import posix

MARKER = ".hotlap-gone."
_KERNEL_DIRECTORIES = frozenset({"/dev", "/proc", "/sys"})
_MOST_LINKS = 40
_LONGEST_NAME, _LONGEST_PATH = 255, 4095  # bytes, as Linux has it
_KERNELS_LINK = re.compile(r"/(?:proc/(?:self|thread-self)/(?:(cwd)|(root)|fd/(\d+))|dev/fd/(\d+))(?=/|$)")
_MOST_REMEMBERED = 50_000


Found: TypeAlias = tuple[str, os.stat_result]


class Directory:
    """A directory of the view, by its canonical path.

    ``above``: the upper tree has it. ``below``: the user's own directory shows through. ``protected``: what is written
    in it is redirected. ``gone``: the names that are gone from it, once somebody asked.
    """

    __slots__ = ("above", "below", "gone", "parent", "path", "protected")

    def __init__(self, path: str, parent: Directory | None, *, above: bool, below: bool, protected: bool) -> None:
        self.path = path
        self.parent = parent if parent is not None else self
        self.above = above
        self.below = below
        self.protected = protected
        self.gone: set[str] | None = None

    def join(self, name: str) -> str:
        return f"/{name}" if self.path == "/" else f"{self.path}/{name}"


class Link:
    """A symbolic link of the view: its target, and whether the script created it."""

    __slots__ = ("above", "target")

    def __init__(self, target: str, *, above: bool) -> None:
        self.target = target
        self.above = above


class Place:
    """A name in a directory of the view, whether or not anything is there. ``found`` is where on the disk a file of
    that name was when we came by, and its status."""

    __slots__ = ("directory", "found", "name", "path", "protected")

    def __init__(self, directory: Directory, name: str, roots: Mapping[str, bool], found: Found | None = None) -> None:
        self.directory = directory
        self.name = name
        self.found = found
        self.path = directory.join(name)
        self.protected = roots.get(self.path, directory.protected and not _is_private_temporary(name))


class View:
    """The two trees as one. Arguments are paths as the script wrote them; errors are plain ``OSError``.

    ``folder`` holds the upper tree. ``roots`` maps directories to whether their contents are protected (the nearest one
    above a path decides; without any, they are).
    """

    def __init__(self, folder: str, roots: Mapping[str, bool]) -> None:
        self.folder = folder
        self._upper = f"{folder}/tree"
        self._marker = ""
        self._staging = f"{folder}/staging"
        for path in (folder, self._upper, self._staging):
            with contextlib.suppress(FileExistsError):
                posix.mkdir(path, 0o755)
        self._marker = f"{MARKER}{posix.stat(self._upper).st_ino:x}."  # a name that no script uses
        self._roots = roots
        self._generation = _shared_number(f"{folder}/generation")
        self._working_directory = self.seen_as(posix.getcwd())
        self._forget()

    # -----------------------------------------------------------------------------------------
    # Caches
    # -----------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Drop the caches. Dictionaries are replaced, not cleared: another thread may be filling the old ones."""
        self._seen_generation = self._generation[0]
        self._untouched: dict[str, bool] = {}
        self._parents: dict[str, Directory] = {}
        self._children: dict[str, Directory | Link] = {}
        anything = self._seen_generation != 0
        self._root = Directory("/", None, above=anything, below=True, protected=self._roots.get("/", True))

    def _changed(self) -> None:
        """Notify all processes that directories or links of the view changed.

        By a random number rather than a count: two processes that count at once would reach the same number.
        """
        self._generation[0] = int.from_bytes(posix.urandom(8), "little") | 1

    def is_same_as_below(self, path: str) -> bool:
        """Whether the kernel's own answer about ``path`` is the right one (the hot path: a dictionary look-up, and
        once the script has written anything, one ``lstat``). ``False`` means "look closer"."""
        if not self.is_untouched(path):
            return False
        if not self._seen_generation:
            return True
        try:
            return not stat.S_ISLNK(posix.lstat(path).st_mode)
        except OSError:
            return True

    def is_untouched(self, path: str) -> bool:
        """Whether nothing was ever written or removed in the directory of ``path``; a link there may still lead
        elsewhere."""
        if self._generation[0] != self._seen_generation:
            self._forget()
        directory = path[: path.rfind("/") + 1]
        untouched = self._untouched.get(directory)
        if untouched is None:
            untouched = self._learn(directory)
        return untouched and path[-1:] not in "/."  # the empty name is in there too

    def _learn(self, text: str) -> bool:
        """Cache the directory that ``text`` names; return whether it is unmodified."""
        untouched, parents = self._untouched, self._parents
        try:
            place, straight = self._walk(text or ".", follow=True)
            directory = self._directory_at(place)
        except OSError:
            return False
        if len(untouched) < _MOST_REMEMBERED and not text.startswith(("/proc/", "/dev/fd/")):  # these change
            untouched[text] = straight and directory.below and not directory.above
            if f"/{directory.path.split('/')[1]}" not in _KERNEL_DIRECTORIES:
                parents[text] = directory
        return straight and directory.below and not directory.above

    # -----------------------------------------------------------------------------------------
    # From a path to a place
    # -----------------------------------------------------------------------------------------

    def _resolve(self, path: str, *, follow: bool = True) -> Place:
        if self._generation[0] != self._seen_generation:
            self._forget()
        start = path.rfind("/") + 1
        text, name = path[:start], path[start:]
        if text not in self._parents:
            self._learn(text)
        directory = self._parents.get(text)
        if directory is not None and name not in ("", ".", ".."):
            child = self._child(directory, name) if follow else None
            if not isinstance(child, (Link, Directory)):
                return Place(directory, name, self._roots, child)
        return self._walk(path, follow=follow)[0]

    def _walk(self, path: str, *, follow: bool) -> tuple[Place, bool]:
        """The place of ``path`` in the view, and whether the kernel resolves it to the same one."""
        if not path:
            raise error(ENOENT)
        if len(path) > _LONGEST_PATH // 4 and len(os.fsencode(path)) > _LONGEST_PATH:
            raise error(ENAMETOOLONG)
        absolute = path if path.startswith("/") else f"{self._working_directory}/{path}"
        if absolute.startswith(("/proc/", "/dev/fd/")):
            absolute = self._without_kernels_links(absolute, follow=follow)
        pending = absolute.split("/")[::-1]
        directory, straight, links = self._root, True, 0
        while pending:
            name = pending.pop()
            if name in ("", "."):
                continue
            if name == "..":
                directory = directory.parent
                continue
            if directory.path in _KERNEL_DIRECTORIES and ".." not in pending:
                return Place(directory, "/".join([name, *pending[::-1]]), self._roots), straight
            last = all(part in ("", ".") for part in pending)
            if last and not pending and not follow:
                return Place(directory, name, self._roots), straight
            child = self._child(directory, name)
            if isinstance(child, Link):
                links += 1
                if links > _MOST_LINKS:
                    raise error(ELOOP)
                straight = straight and not child.above
                pending.extend(child.target.split("/")[::-1])
                if child.target.startswith("/"):
                    directory = self._root
            elif isinstance(child, Directory):
                directory, straight = child, straight and child.below
            elif last and (child is None or not pending):
                return Place(directory, name, self._roots, child), straight
            else:
                raise error(ENOENT if child is None else ENOTDIR)
        name = directory.path.rpartition("/")[2]
        return Place(directory.parent, name, self._roots), straight

    def _without_kernels_links(self, path: str, *, follow: bool) -> str:
        """A path that leads through this process's working directory, root or open files, by its usual name."""
        link = _KERNELS_LINK.match(path)
        if link is None or (link.end() == len(path) and not follow):
            return path
        working, root, *descriptors = link.groups()
        rest = path[link.end() :]
        if working:
            return self._working_directory + rest
        if root:
            return rest or "/"
        target = self._path_behind(int(descriptors[0] or descriptors[1]))
        return path if target is None else target + rest

    def _path_behind(self, descriptor: int) -> str | None:
        """The path, in the view, of an open file or directory that still has one."""
        try:
            physical = posix.readlink(f"/proc/self/fd/{descriptor}")
            there, opened = posix.lstat(physical), posix.fstat(descriptor)
        except OSError:
            return None
        if (there.st_ino, there.st_dev) != (opened.st_ino, opened.st_dev):
            return None
        return self.seen_as(physical)

    def _child(self, directory: Directory, name: str) -> Directory | Link | Found | None:
        """The entry of that name: a directory or link (which are cached), or the place of something else."""
        path = directory.join(name)
        remembered = self._children
        known = remembered.get(path)
        if known is not None:
            return known
        above = status_of(self._upper + path) if directory.above else None
        below = None if self._hides(directory, name) else status_of(path)
        status = above or below
        child: Directory | Link
        if status is None:
            return None
        if stat.S_ISLNK(status.st_mode):
            child = Link(posix.readlink(self._upper + path if above else path), above=above is not None)
        elif stat.S_ISDIR(status.st_mode):
            shows = below is not None and stat.S_ISDIR(below.st_mode)
            protected = self._roots.get(path, directory.protected and not _is_private_temporary(name))
            child = Directory(path, directory, above=above is not None, below=shows, protected=protected)
        else:
            return (self._upper + path if above else path), status
        if len(remembered) < _MOST_REMEMBERED:
            remembered[path] = child
        return child

    def _directory_at(self, place: Place) -> Directory:
        if not place.name:
            return self._root
        child = self._child(place.directory, place.name)
        if isinstance(child, Directory):
            return child
        raise error(ENOENT if self._find(place) is None else ENOTDIR)

    def _hides(self, directory: Directory, name: str) -> bool:
        """Whether the user's own file of that name is deleted in the view."""
        if not directory.below or not directory.above:
            return not directory.below
        if directory.gone is None:
            above = posix.listdir(self._upper + directory.path)
            directory.gone = {it for it in above if it.startswith(self._marker)}
        return self._marker_of(name) in directory.gone

    def _marker_of(self, name: str) -> str:
        """The name of the marker of a deleted name; long names are replaced by their digest."""
        marker = self._marker + name
        encoded = os.fsencode(marker)
        return marker if len(encoded) <= _LONGEST_NAME else self._marker + hashlib.sha256(encoded).hexdigest()

    def _find(self, place: Place) -> Found | None:
        """Where on the disk the thing at ``place`` is, links not followed. Of a directory that both trees have, the
        user's is named: its number and device do not change when something is written into it."""
        above = None
        if place.directory.above and place.name:
            above = status_of(self._upper + place.path)
            if above is not None and not stat.S_ISDIR(above.st_mode):
                return self._upper + place.path, above
        if not self._hides(place.directory, place.name):
            below = status_of(place.path)
            if below is not None and (above is None or stat.S_ISDIR(below.st_mode)):
                return place.path, below
        return None if above is None else (self._upper + place.path, above)

    def _existing(self, place: Place) -> Found:
        found = place.found or self._find(place)
        if found is None:
            raise error(ENOENT)
        return found

    # -----------------------------------------------------------------------------------------
    # Reading
    # -----------------------------------------------------------------------------------------

    def locate(self, path: str, *, follow: bool = True) -> str:
        """Where on the disk to read what the script calls ``path``."""
        place = self._resolve(path, follow=follow)
        return self._existing(place)[0] if place.protected else place.path

    def status(self, path: str, *, follow: bool = True) -> os.stat_result:
        """The result of ``stat`` for what the script calls ``path``."""
        place = self._resolve(path, follow=follow)
        if not place.protected:
            return posix.stat(place.path, follow_symlinks=follow)
        physical, status = self._existing(place)
        if stat.S_ISDIR(status.st_mode) and physical == place.path and place.directory.above and place.name:
            above = status_of(self._upper + place.path)
            return status if above is None else _of_both(status, above)
        return status

    def locate_properties(self, path: str, *, follow: bool = True) -> str:
        """Where on the disk to read the attributes of what the script calls ``path``."""
        place = self._resolve(path, follow=follow)
        if not place.protected:
            return place.path
        physical, status = self._existing(place)
        if stat.S_ISDIR(status.st_mode) and place.directory.above and status_of(self._upper + place.path) is not None:
            return self._upper + place.path
        return physical

    def protected_path(self, path: str) -> str | None:
        """The canonical path, if writes to it are redirected."""
        place = self._resolve(path)
        return place.path if place.protected else None

    def nowhere(self, path: str) -> str:
        """A path with the same last component at which nothing exists nor can be created."""
        return f"{self._upper}/{MARKER}/{path.rpartition('/')[2]}"

    def names(self, path: str) -> list[str]:
        """The names in a directory of the view, in no particular order."""
        directory = self._directory_at(self._resolve(path))
        below = posix.listdir(directory.path) if directory.below else []
        if not directory.above:
            return below
        above = posix.listdir(self._upper + directory.path)
        hidden = set(above)
        shown = [it for it in below if it not in hidden and self._marker_of(it) not in hidden]
        return shown + [it for it in above if not it.startswith(self._marker)]

    def working_directory(self) -> str:
        return self._working_directory

    def change_directory(self, path: str) -> None:
        """Enter a directory of the view. One that the user has is entered for real, so that native code too finds
        the files in it by their names."""
        place = self._resolve(path)
        directory = self._directory_at(place)
        posix.chdir(directory.path if directory.below else self._upper + directory.path)
        self._working_directory = directory.path
        self._untouched, self._parents = {}, {}

    def path_of(self, descriptor: int) -> str:
        """The path, in the view, of an open directory."""
        if sys.platform == "darwin":
            import fcntl

            return self.seen_as(os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")))
        return self.seen_as(posix.readlink(f"/proc/self/fd/{descriptor}"))

    def seen_as(self, path: str) -> str:
        """The script's name for a path on the disk."""
        if path == self._upper:
            return "/"
        return path.removeprefix(self._upper) if path.startswith(f"{self._upper}/") else path


def _of_both(below: os.stat_result, above: os.stat_result) -> os.stat_result:
    """Of a directory that both trees have: the user's own number, with the mode, owner and times that it has now."""
    fields = list(below)
    if above.st_mode != below.st_mode | 0o700:  # the upper tree needs it
        fields[0] = above.st_mode
    fields[4], fields[5] = above.st_uid, above.st_gid
    fields[7:10] = list(above)[7:10]
    more = {it: getattr(below, it) for it in ("st_blksize", "st_blocks", "st_rdev")}
    for name in ("st_atime", "st_mtime", "st_ctime"):
        more |= {name: getattr(above, name), f"{name}_ns": getattr(above, f"{name}_ns")}
    return os.stat_result(fields, more)


def _is_private_temporary(name: str) -> bool:
    """The folder that multiprocessing makes in the temporary directory for its sockets: native code must find them,
    also where the script runs in the temporary directory itself."""
    return len(name) == 13 and name.startswith("pymp-")


def _shared_number(path: str) -> memoryview:
    """A 64-bit number that all processes with this overlay see. Its block is taken before it is mapped: on a full disk
    that is an ``OSError`` here rather than a fault later."""
    descriptor = posix.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if posix.fstat(descriptor).st_size < 8:
            posix.ftruncate(descriptor, 8)
        if sys.platform != "darwin":
            try:
                posix.posix_fallocate(descriptor, 0, 8)
            except OSError as failure:
                if failure.errno in (ENOSPC, EDQUOT):
                    raise
        return memoryview(mmap.mmap(descriptor, 8)).cast("Q")
    finally:
        posix.close(descriptor)
