"""A copy-on-write layer over the user's files for what the script changes (see :mod:`hotlap.runtime.view`)."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from errno import EACCES, EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EPERM, EXDEV

from hotlap.runtime.file_copies import copy_attributes, copy_file, error, status_of
from hotlap.runtime.originals import posix
from hotlap.runtime.view import Directory, Place, View

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Overlay(View):
    """A writable view. ``noted`` is called with every path opened for writing, and whether it was redirected."""

    def __init__(self, folder: str, roots: Mapping[str, bool], noted: Callable[[str, bool], None]) -> None:
        super().__init__(folder, roots)
        self._noted = noted
        self._changed_folders: set[str] = set()
        self._to_be_made = frozenset(
            parent for root, protected in roots.items() if not protected for parent in _missing_parents(root)
        )

    def for_writing(self, path: str, flags: int) -> str:
        """Where on the disk to open ``path`` with the ``O_*`` flags given. What is written over a file of the user's
        goes to a copy of it (an empty one where it would be truncated anyway)."""
        exclusive = bool(flags & os.O_CREAT and flags & os.O_EXCL)
        if flags & os.O_CREAT and path.endswith("/"):
            self._resolve(path.rstrip("/") or "/")
            raise error(EISDIR)
        place = self._resolve(path, follow=not (exclusive or flags & getattr(os, "O_NOFOLLOW", 0)))
        if not place.protected:
            self._noted(place.path, False)
            return place.path
        found = place.found or self._find(place)
        if found is None:
            if not flags & os.O_CREAT:
                raise error(ENOENT)
            self._prepare(place)
        else:
            if exclusive:
                raise error(EEXIST)
            if _is_device(found[1]):
                return found[0]
            if stat.S_ISDIR(found[1].st_mode):
                raise error(EISDIR)
            if found[0] == place.path:
                if not posix.access(place.path, os.W_OK):
                    raise error(EACCES)
                self._copy_up(place, found[1], contents=not flags & os.O_TRUNC)
        self._noted(place.path, True)
        return self._upper + place.path

    def for_change(self, path: str, *, follow: bool = True) -> str:
        """Where on the disk to change the length, the mode or the times of what the script calls ``path``. An owner may
        change the mode of a read-only file, and the kernel refuses what the mode of the copy forbids."""
        place = self._resolve(path, follow=follow)
        found = self._existing(place) if place.protected else None
        if found is None or _is_device(found[1]):
            return place.path
        if stat.S_ISDIR(found[1].st_mode):
            self._mirror(self._directory_at(place))
            self._changed_folders.add(place.path)
        elif found[0] == place.path:
            _refuse_others(found[1], place.path)
            self._copy_up(place, found[1], contents=True)
        return self._upper + place.path

    def behind(self, descriptor: int) -> str | None:
        """Where to change the mode, owner, times or attributes of a file of the user's that is open; None for any
        other, which may be changed directly."""
        path = self._path_behind(descriptor)
        if path is None:
            return None
        place = self._resolve(path)
        found = self._find(place) if place.protected else None
        return None if found is None or found[0] != place.path else self.for_change(path)

    def for_making(self, path: str) -> str:
        """Where on the disk to make something new (a directory, a pipe) called ``path``."""
        place = self._resolve(path, follow=False)
        if not place.protected or place.path in self._to_be_made:
            return place.path
        self._refuse_existing(place)
        self._prepare(place)
        return self._upper + place.path

    def for_writing_into(self, path: str) -> str:
        """Where on disk native code must create files in a folder, which is created if necessary and does not show the
        user's files."""
        place = self._resolve(path)
        if not place.protected:
            return place.path
        if self._find(place) is None:
            self._prepare(place)
        else:
            self._mirror(self._directory_at(place))
        self._noted(place.path, True)
        return self._upper + place.path

    def has_made(self, place: str) -> bool:
        """Whether a path on disk belongs to the upper tree."""
        return place.startswith(f"{self._upper}/")

    def folders_were_made(self) -> None:
        """Register folders that native code created at a path."""
        self._changed()

    def make_directory(self, path: str, mode: int) -> None:
        physical = self.for_making(path)
        posix.mkdir(physical, mode)
        if physical.startswith(self._upper):
            self._changed()

    def symlink(self, target: str, path: str) -> None:
        physical = self.for_making(path)
        posix.symlink(target, physical)
        if physical.startswith(self._upper):
            self._changed()

    def link(self, source: str, target: str, *, follow: bool) -> None:
        """A second name for a file. Between a protected and another place it becomes a copy: what is later written
        through one name must not reach the other's tree."""
        origin = self._resolve(source, follow=follow)
        physical, status = self._existing(origin)
        place = self._resolve(target, follow=False)
        self._refuse_existing(place)
        if follow and physical.startswith("/proc/"):
            self._link_open_file(physical, place)
            return
        if stat.S_ISDIR(status.st_mode):
            raise error(EPERM)
        if not place.protected and not origin.protected:
            posix.link(physical, place.path, follow_symlinks=False)
            return
        if origin.protected and place.protected:
            self._prepare(place)
            if physical == origin.path:
                _refuse_others(status, physical)
                self._copy_up(origin, status, contents=True)
            posix.link(self._upper + origin.path, self._upper + place.path, follow_symlinks=False)
            self._noted(place.path, True)
        else:
            self._copy_across(physical, status, place)

    def _link_open_file(self, kernels_link: str, place: Place) -> None:
        """Give a name to an open file without one (``O_TMPFILE``)."""
        self._prepare(place)
        root = posix.open("/", os.O_RDONLY | os.O_CLOEXEC)
        try:  # without a descriptor of a directory, no link is followed
            target = self._upper + place.path if place.protected else place.path
            posix.link(kernels_link, target, src_dir_fd=root, follow_symlinks=True)
        finally:
            posix.close(root)
        self._noted(place.path, place.protected)

    def remove(self, path: str) -> None:
        place = self._resolve(path, follow=False)
        if not place.protected:
            posix.unlink(place.path)
            return
        if stat.S_ISDIR(self._existing(place)[1].st_mode):
            raise error(EISDIR)
        self._refuse_closed(place.directory)
        self._remove_place(place)

    def remove_directory(self, path: str) -> None:
        if path.rstrip("/").rpartition("/")[2] == ".":
            raise error(EINVAL)
        place = self._resolve(path, follow=False)
        if not place.protected:
            posix.rmdir(place.path)
            return
        if not stat.S_ISDIR(self._existing(place)[1].st_mode):
            raise error(ENOTDIR)
        self._refuse_closed(place.directory)
        if self.names(place.path):
            raise error(ENOTEMPTY)
        self._remove_place(place)

    def rename(self, source: str, target: str) -> None:
        """Rename as POSIX does. What is the user's is copied first; a whole directory cannot cross between a
        protected and another place (``EXDEV``, upon which ``shutil.move`` copies)."""
        origin, place = self._resolve(source, follow=False), self._resolve(target, follow=False)
        if not origin.protected and not place.protected:
            posix.rename(origin.path, place.path)
            return
        physical, status = self._existing(origin)
        if origin.path == place.path:
            return
        self._refuse_closed(origin.directory)
        self._check_rename(origin, place, is_directory=stat.S_ISDIR(status.st_mode))
        if origin.protected and place.protected:
            self._prepare(place)
            self._rename_above(origin, place)
            self._noted(place.path, True)
        elif stat.S_ISDIR(status.st_mode):
            raise error(EXDEV)
        else:
            self._copy_across(physical, status, place)
            self._remove_place(origin)

    def _copy_across(self, physical: str, status: os.stat_result, place: Place) -> None:
        """Copy a file to ``place`` where only one of the two is protected."""
        self._prepare(place)
        if place.protected:
            copy_file(physical, self._upper + place.path, status, staging=self._staging)
        else:
            copy_file(physical, place.path, status, staging=place.directory.path)
        self._noted(place.path, place.protected)

    def _check_rename(self, origin: Place, place: Place, *, is_directory: bool) -> None:
        found = self._find(place)
        if is_directory and place.path.startswith(f"{origin.path}/"):
            raise error(EINVAL)
        if origin.path.startswith(f"{place.path}/"):
            raise error(ENOTEMPTY)
        if found is None:
            return
        if not stat.S_ISDIR(found[1].st_mode):
            if is_directory:
                raise error(ENOTDIR)
        elif not is_directory:
            raise error(EISDIR)
        elif self.names(place.path):
            raise error(ENOTEMPTY)

    def _rename_above(self, origin: Place, place: Place) -> None:
        self._copy_all_up(origin)
        if isinstance(self._child(place.directory, place.name), Directory):
            self._remove_place(place)
        if self._shows_below(origin):
            self._mark_gone(origin)
        posix.rename(self._upper + origin.path, self._upper + place.path)
        self._changed()

    def _remove_place(self, place: Place) -> None:
        """Take a file, link or empty directory out of the view. The marker comes first, so that at no moment the
        user's own file of that name shows."""
        if not place.protected:
            posix.unlink(place.path)
            return
        if self._shows_below(place):
            self._mark_gone(place)
        upper = self._upper + place.path
        above = status_of(upper) if place.directory.above else None
        if above is None:
            return
        if stat.S_ISDIR(above.st_mode):
            for name in posix.listdir(upper):
                if name.startswith(self._marker):
                    posix.unlink(f"{upper}/{name}")
            posix.rmdir(upper)
        else:
            posix.unlink(upper)
        if not stat.S_ISREG(above.st_mode):
            self._changed()

    def _shows_below(self, place: Place) -> bool:
        return not self._hides(place.directory, place.name) and status_of(place.path) is not None

    def _mark_gone(self, place: Place) -> None:
        self._mirror(place.directory)
        name = self._marker_of(place.name)
        marker = f"{self._upper}{place.directory.join(name)}"
        posix.close(posix.open(marker, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if place.directory.gone is not None:
            place.directory.gone.add(name)
        self._changed()

    def _refuse_existing(self, place: Place) -> None:
        if self._find(place) is not None:
            raise error(EEXIST)

    def _prepare(self, place: Place) -> None:
        """Ensure that the upper tree has the directory of a new entry."""
        if not place.protected:
            return
        self._refuse_closed(place.directory)
        self._mirror(place.directory)

    def _refuse_closed(self, directory: Directory) -> None:
        """Raise what the kernel raises where names may not be added to a directory of the user's, nor taken out of it.
        Its mirror is always open, until the script gives it a mode."""
        if not directory.protected or not directory.below:
            return
        changed = directory.above and directory.path in self._changed_folders
        if not posix.access(self._upper + directory.path if changed else directory.path, os.W_OK):
            raise error(EACCES)

    def _mirror(self, directory: Directory) -> None:
        if directory.above:
            return
        if directory.path != "/":
            self._mirror(directory.parent)
            path = self._upper + directory.path
            status = posix.stat(directory.path)
            with self._times_kept(directory.parent), contextlib.suppress(FileExistsError):  # another process was faster
                posix.mkdir(path, 0o700)
                copy_attributes(directory.path, path)
                posix.chmod(path, stat.S_IMODE(status.st_mode) | 0o700)
                posix.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        directory.above = True
        self._changed()

    @contextlib.contextmanager
    def _times_kept(self, directory: Directory) -> Iterator[None]:
        """Add an existing entry of the view to the upper tree."""
        path = self._upper + directory.path
        status = posix.stat(path)
        try:
            yield
        finally:
            posix.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _copy_up(self, place: Place, status: os.stat_result, *, contents: bool) -> None:
        """Make a copy of a file or link of the user's in the upper tree, unless another process just did."""
        self._mirror(place.directory)
        target = self._upper + place.path
        with self._times_kept(place.directory):
            copy_file(place.path, target, status, staging=self._staging, contents=contents, replace=False)

    def _copy_all_up(self, place: Place) -> None:
        """Copy everything that the view shows at ``place`` to the upper tree."""
        physical, status = self._existing(place)
        if stat.S_ISDIR(status.st_mode):
            directory = self._directory_at(place)
            self._mirror(directory)
            for name in self.names(place.path):
                self._copy_all_up(Place(directory, name, self._roots))
        elif physical == place.path:
            self._copy_up(place, status, contents=True)


def _is_device(status: os.stat_result) -> bool:
    """A pipe, socket or device: writing to it changes no file."""
    return not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode))


def _refuse_others(status: os.stat_result, path: str) -> None:
    """Raise the kernel's error for changing another user's file without permission."""
    if status.st_uid != posix.geteuid() and not stat.S_ISLNK(status.st_mode) and not posix.access(path, os.W_OK):
        raise error(EPERM)


def _missing_parents(path: str) -> list[str]:
    missing = []
    parent = path.rpartition("/")[0]
    while parent and status_of(parent) is None:
        missing.append(parent)
        parent = parent.rpartition("/")[0]
    return missing
