"""What is mounted here, and where a layer of the run's own has to go. Pure functions of the kernel's text."""

from __future__ import annotations

import os
import stat

from hotlap.sandbox import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Not ordinary files: writes go to the kernel or to a device.
_KERNELS = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
    "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs",
    "tracefs",
})  # fmt: skip
KERNEL_FOLDERS = ("/dev", "/proc", "/sys")
# Programs and settings of the system, which an ordinary user cannot write to, so that they need no search.
_SYSTEM_FOLDERS = frozenset(("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/sbin", "/usr", *KERNEL_FOLDERS))
_FLAGS = {
    "nosuid": kernel.MS_NOSUID,
    "nodev": kernel.MS_NODEV,
    "noexec": kernel.MS_NOEXEC,
    "noatime": kernel.MS_NOATIME,
    "nodiratime": kernel.MS_NODIRATIME,
    "relatime": kernel.MS_RELATIME,
}
_DEEPEST, _MOST_LOOKED_AT, _MOST_POINTS = 4, 4000, 200


class Mount:
    """One mount of /proc/self/mountinfo; ``flags`` are those that a remount must keep."""

    __slots__ = ("flags", "kind", "number", "parent", "point", "writable")

    def __init__(self, *, number: int, parent: int, point: str, kind: str, writable: bool, flags: int) -> None:
        self.number = number
        self.parent = parent
        self.point = point
        self.kind = kind
        self.writable = writable
        self.flags = flags

    @property
    def of_the_kernel(self) -> bool:
        """Whether it shows devices or the kernel's own state and no files."""
        return self.kind in _KERNELS or below_any(self.point, KERNEL_FOLDERS)


def read_mounts(text: bytes) -> list[Mount]:
    """The mounts that paths can reach, outermost first, from the text of /proc/self/mountinfo."""
    every = [_parsed(line) for line in text.splitlines() if line]
    children: dict[int, list[Mount]] = {}
    for it in every:
        children.setdefault(it.parent, []).append(it)
    numbers = {it.number for it in every}
    root = next(it for it in every if it.point == "/" and it.parent not in numbers)
    found: list[Mount] = []
    waiting = [root]
    while waiting:
        top = _uppermost(waiting.pop(0), children)
        found.append(top)
        inside = [it for it in children.get(top.number, ()) if it.point != top.point]
        points = [it.point for it in inside]
        waiting += [it for it in inside if not any(is_below(it.point, other) for other in points)]
    return sorted(found, key=lambda it: it.point.count("/") if it.point != "/" else 0)


def _uppermost(mount: Mount, children: dict[int, list[Mount]]) -> Mount:
    """The topmost of the mounts at one mount point."""
    while True:
        above = [it for it in children.get(mount.number, ()) if it.point == mount.point]
        if not above:
            return mount
        mount = above[-1]


def _parsed(line: bytes) -> Mount:
    fields = line.split(b" ")
    divider = fields.index(b"-")
    options = fields[5].decode("ascii", "replace").split(",")
    of_the_filesystem = fields[divider + 3].decode("utf-8", "replace").split(",")
    return Mount(
        number=int(fields[0]),
        parent=int(fields[1]),
        point=os.fsdecode(_unescaped(fields[4])),
        kind=fields[divider + 1].decode("ascii", "replace"),
        writable="rw" in options and "ro" not in of_the_filesystem,
        flags=sum(_FLAGS.get(it, 0) for it in options),
    )


def _unescaped(field: bytes) -> bytes:
    for escape, byte in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        field = field.replace(escape, byte)
    return field


def is_below(path: str, folder: str) -> bool:
    """Whether a path is in a folder, at any depth; a folder is not below itself."""
    return path != folder and path.startswith(folder if folder == "/" else f"{folder}/")


def below_any(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of the folders or is in one."""
    return any(path == it or is_below(path, it) for it in folders)


def points_of_root(mounts: Sequence[Mount]) -> list[str]:
    """Where root's layers go: over every mount that holds files and may be written."""
    return [it.point for it in mounts if it.writable and not it.of_the_kernel and os.path.isdir(it.point)]


def points_of_user(mounts: Sequence[Mount], interest: Iterable[str]) -> list[str]:
    """Where an ordinary user's layers go: over the topmost folders that the user owns, and over all others that the
    user may write to.

    overlayfs copies what is changed with its owner, which a user namespace cannot do for another user's folder: so a
    layer must begin below those. ``interest`` are paths that must be found however deep they are; elsewhere the search
    ends after a few levels. A folder in which something else is mounted cannot have a layer of its own there (the
    kernel refuses, as it could reveal what the mount hides). What has no layer becomes read-only.
    """
    search = _Search(mounts)
    for path in interest:  # first, as there may be more folders than can have layers
        search.look_along(path)
    for it in mounts:
        if it.writable and not it.of_the_kernel:
            search.look_through(it.point, depth=_DEEPEST)
    return sorted(search.points, key=lambda it: (it.count("/"), it))


class _Search:
    def __init__(self, mounts: Sequence[Mount]) -> None:
        self.points: set[str] = set()
        self._mounts = {it.point: it for it in mounts}
        self._user = os.geteuid()
        self._looked_at = 0

    def look_through(self, folder: str, depth: int) -> None:
        waiting = [(folder, depth)]
        while waiting:
            path, left = waiting.pop(0)
            if not self._goes_on_below(path) or left == 0 or path in _SYSTEM_FOLDERS:
                continue
            waiting += [(it, left - 1) for it in self._folders_in(path)]

    def look_along(self, path: str) -> None:
        """The folders on the way to ``path``, and itself."""
        parts = os.path.realpath(path).split("/")[1:]
        for count in range(len(parts) + 1):
            folder = "/" + "/".join(parts[:count])
            mount = self._mount_of(folder)
            if not mount.writable or mount.of_the_kernel or not os.path.isdir(folder):
                continue
            if not self._goes_on_below(folder):
                return

    def _goes_on_below(self, folder: str) -> bool:
        """Add the folder if it needs a layer; return whether folders in it may need layers too."""
        try:
            status = os.stat(folder, follow_symlinks=False)
        except OSError:
            return False
        if not stat.S_ISDIR(status.st_mode):
            return False
        own = status.st_uid == self._user
        if own and os.path.dirname(folder) in self.points:
            return False  # the layer over the folder above can copy it
        holds_mounts = any(is_below(it, folder) for it in self._mounts)
        if os.access(folder, os.W_OK) and not holds_mounts and len(self.points) < _MOST_POINTS:
            self.points.add(folder)
        return holds_mounts or not own

    def _folders_in(self, path: str) -> list[str]:
        try:
            with os.scandir(path) as entries:
                found = []
                for entry in entries:
                    self._looked_at += 1
                    if self._looked_at > _MOST_LOOKED_AT:
                        break
                    if entry.is_dir(follow_symlinks=False) and entry.path not in self._mounts:
                        found.append(entry.path)
        except OSError:
            return []
        return found

    def _mount_of(self, path: str) -> Mount:
        while path not in self._mounts:
            path = path.rpartition("/")[0] or "/"
        return self._mounts[path]
