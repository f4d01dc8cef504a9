"""The run's own layers over everything that may be written (overlayfs), visible to one process and its children.

Called in the launcher's child, after it has entered the namespaces and before the script begins. Sources: the Linux
documentation of overlayfs, mount_namespaces(7), pivot_root(2).
"""

from __future__ import annotations

import errno
import os
import stat

from hotlap.sandbox import kernel
from hotlap.sandbox.mounts import (
    KERNEL_FOLDERS,
    Mount,
    below_any,
    points_of_root,
    points_of_user,
    read_mounts,
)
from hotlap.sandbox.order import POINTS, Order, encoded

_SHARED_MEMORY = "/dev/shm"
_MOST_SOCKETS = 500
_NO_LAYER = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV, errno.EPERM, errno.ELOOP, errno.ESTALE})

_CANNOT_BE_MADE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP, errno.EOVERFLOW})


class Ground:
    """Where the layers of a run go, and how they are mounted."""

    def __init__(self, mounts: list[Mount], points: list[str]) -> None:
        self.mounts = mounts
        self.points = points


def survey(order: Order, *, as_root: bool) -> Ground:
    """Find where layers have to go. Call this while files show their true owners: before entering a user namespace."""
    mounts = read_mounts(_read("/proc/self/mountinfo"))
    return Ground(mounts, points_of_root(mounts) if as_root else points_of_user(mounts, order.interest))


def lay_over(order: Order, ground: Ground, *, as_root: bool) -> None:
    """Mount a view of all files in which writes go to ``order.layers``.

    ``as_root``: with the rights of the machine's administrator (or of a container's), under which the view gets a new
    root; else in place. Raises :class:`OSError` where the kernel refuses.
    """
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    view = _View(order, ground)
    if as_root:
        view.recreate()
    else:
        view.make_in_place()
    view.write_points()


class _Layer:
    """The folders of one layer, created and opened before anything is mounted over them."""

    def __init__(self, folder: str, point: str) -> None:
        self.point = point
        upper, work = f"{folder}/upper", f"{folder}/work"
        for it in (folder, upper, work):
            os.mkdir(it, 0o700)
        _copy_attributes(point, upper)
        self._handles = [_handle(it) for it in (point, upper, work)]

    def mount(self, target: str, options: str) -> None:
        paths = "lowerdir={},upperdir={},workdir={}".format(*map(_path_of, self._handles))
        # Without `volatile` the kernel flushes the whole disk's dirty data, other programs' too, whenever a layer is
        # unmounted, and the run cannot end before that is done. The drawback: fsync costs nothing in a trial.
        try:
            kernel.mount("hotlap", target, "overlay", 0, f"{paths},{options},volatile")
        except OSError as error:
            if error.errno != errno.EINVAL:  # before Linux 5.10
                raise
            kernel.mount("hotlap", target, "overlay", 0, f"{paths},{options}")

    def mount_below_alone(self, target: str) -> None:
        """The folder below the layer, read-only."""
        kernel.mount(_path_of(self._handles[0]), target, "", kernel.MS_BIND)
        _make_read_only(target, 0)


class _View:
    def __init__(self, order: Order, ground: Ground) -> None:
        self._order = order
        self._mounts = ground.mounts
        self._wanted = ground.points
        self._points: list[str] = []
        self._read_only: list[str] = []
        # A mount of its own, which stays writable when the one around it becomes read-only.
        kernel.mount(order.layers, order.layers, "", kernel.MS_BIND)
        self._folder = _handle(order.layers)
        # By number, since names may contain anything and will soon be hidden below a layer.
        pairs = zip(order.shared, order.shared_at, strict=True)
        self._shared = [(path, _handle(kept)) for kept, path in pairs if os.path.lexists(kept)]
        self._shared_memory = f"{order.layers}/shm"
        os.mkdir(self._shared_memory, 0o700)
        self._sockets = _opened([it for it in _bound_sockets() if not below_any(it, KERNEL_FOLDERS)])

    # -- an administrator's way ----------------------------------------------------------------

    def recreate(self) -> None:
        """Mount a new root: layers over each mount that may be written, all others read-only."""
        new = f"{self._order.layers}/root"
        os.mkdir(new, 0o700)
        # Renaming a folder, and keeping the names of a linked file together, needs attributes that only the machine's
        # own administrator may write. Without them renaming is refused (EXDEV), and a changed name becomes a separate
        # file.
        options = "redirect_dir=on,index=on" if kernel.in_first_user_namespace() else "userxattr"
        layers = self._prepared()
        for it in self._mounts:
            target = new + it.point.rstrip("/")
            if it.point in layers:
                self._lay(layers[it.point], target, options)
            elif not it.of_the_kernel and os.path.lexists(target):
                kernel.mount(it.point, target, "", kernel.MS_BIND)
                _make_read_only(target, it.flags)
        for folder in KERNEL_FOLDERS:
            if os.path.isdir(folder) and os.path.isdir(new + folder):
                kernel.mount(folder, new + folder, "", kernel.MS_BIND | kernel.MS_REC)
        self._let_through(new)
        os.chdir(new)
        kernel.pivot_root(".", ".")
        kernel.unmount(".", kernel.MNT_DETACH)
        os.chdir("/")

    # -- an ordinary user's way ----------------------------------------------------------------

    def make_in_place(self) -> None:
        """Mount everything read-only, then layers over what the user may write to. What is shared with the outside gets
        none: it would become visible together with the layer over it."""
        shared = (*self._order.shared, *self._order.shared_at)
        self._wanted = [it for it in self._wanted if not below_any(it, shared)]
        layers = self._prepared()
        for it in self._mounts:
            if it.writable and not it.of_the_kernel:
                _make_read_only(it.point, it.flags)
        for point, layer in layers.items():
            self._lay(layer, point, "userxattr")
        self._let_through("")

    # -- both ----------------------------------------------------------------------------------

    def _prepared(self) -> dict[str, _Layer]:
        return {it: _Layer(f"{self._order.layers}/{number}", it) for number, it in enumerate(self._wanted)}

    def _lay(self, layer: _Layer, target: str, options: str) -> None:
        """Show a file system that no layer can cover read-only, unless the script works in it."""
        self._points.append(layer.point)
        try:
            layer.mount(target, options)
        except OSError as error:
            at_work = any(below_any(it, [layer.point]) for it in (self._order.directory, *self._order.interest))
            if error.errno not in _NO_LAYER or at_work:
                raise OSError(error.errno, f"no layer can cover it: {error.strerror}", layer.point) from None
            layer.mount_below_alone(target)
            self._read_only.append(layer.point)

    def _let_through(self, root: str) -> None:
        """Mount what is not layered: shared memory of the run's own, sockets, the run's folder, caches."""
        _own_shared_memory(root, self._shared_memory)
        for path, handle in self._sockets:
            if below_any(path, self._points) and os.path.lexists(root + path):
                _let_socket_through(handle, root + path)
            os.close(handle)
        for path in self._order.hidden:
            if os.path.isdir(root + path):
                kernel.mount("hotlap", root + path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=700,size=1m")
        for path, handle in self._shared:
            target = root + path
            if _is_there_or_made(target):
                kernel.mount(_path_of(handle), target, "", kernel.MS_BIND | kernel.MS_REC)
                if not root:
                    _make_writable(target, self._flags_of(path))
            os.close(handle)
        # The layers themselves are hidden from a script that lists its folders.
        if os.path.isdir(root + self._order.layers):
            kernel.mount("hotlap", root + self._order.layers, "tmpfs", 0, "mode=700,size=4k")

    def _flags_of(self, path: str) -> int:
        return max((it for it in self._mounts if below_any(path, [it.point])), key=lambda it: len(it.point)).flags

    def write_points(self) -> None:
        """Write down which folder each layer covers."""
        text = encoded([("read_only" if it in self._read_only else "layer", it) for it in self._points])
        descriptor = os.open(POINTS, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=_reopened(self._folder))
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)


def _own_shared_memory(root: str, folder: str) -> None:
    """Mount shared memory that ends with the run over the existing one, of the same size."""
    if not os.path.isdir(root + _SHARED_MEMORY):
        return
    size = os.statvfs(_SHARED_MEMORY)
    options = f"mode=1777,size={size.f_frsize * size.f_blocks}"
    if not os.listdir(root + _SHARED_MEMORY):
        kernel.mount("hotlap", root + _SHARED_MEMORY, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
        return
    kernel.mount("hotlap", folder, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    for it in ("upper", "work"):
        os.mkdir(f"{folder}/{it}")
    os.chmod(f"{folder}/upper", 0o1777)
    kinds = "" if kernel.in_first_user_namespace() else ",userxattr"
    data = f"lowerdir={_SHARED_MEMORY},upperdir={folder}/upper,workdir={folder}/work{kinds}"
    kernel.mount("hotlap", root + _SHARED_MEMORY, "overlay", 0, data)


def _is_there_or_made(folder: str) -> bool:
    """Whether a folder can be shared; where the script could not create it either (a home that does not exist, a
    read-only disk), nothing can be written to it."""
    if not os.path.lexists(folder):
        try:
            os.makedirs(folder, 0o700, exist_ok=True)
        except OSError as error:
            if error.errno not in _CANNOT_BE_MADE:
                raise
            return False
    return True


def _make_read_only(point: str, flags: int) -> None:
    kernel.mount("none", point, "", kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | flags)


def _make_writable(point: str, flags: int) -> None:
    kernel.mount("none", point, "", kernel.MS_REMOUNT | kernel.MS_BIND | flags)


def _copy_attributes(origin: str, target: str) -> None:
    """Copy mode and owner to the topmost folder of a layer, which hides that of the folder below it."""
    status = os.stat(origin)
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        try:
            os.chown(target, status.st_uid, status.st_gid)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EINVAL):  # an ordinary user cannot give files to others
                raise
    os.chmod(target, stat.S_IMODE(status.st_mode) | (0 if status.st_uid == os.geteuid() else 0o300))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _handle(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _reopened(handle: int) -> int:
    return os.open(_path_of(handle), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _path_of(handle: int) -> str:
    return f"/proc/self/fd/{handle}"


def _bound_sockets() -> list[str]:
    """The sockets of other programs that have a path: through a layer no program would be listening on them."""
    found = []
    for line in _read("/proc/net/unix").splitlines()[1:]:
        fields = line.split(None, 7)
        path = os.fsdecode(fields[7]) if len(fields) == 8 else ""
        if path.startswith("/") and _is_socket(path):
            found.append(os.path.realpath(path))
    return list(dict.fromkeys(found))[:_MOST_SOCKETS]


def _opened(paths: list[str]) -> list[tuple[str, int]]:
    """Handles of those that are still there: other programs remove their sockets at any time."""
    found = []
    for path in paths:
        try:
            found.append((path, _handle(path)))
        except FileNotFoundError:
            continue
    return found


def _let_socket_through(handle: int, target: str) -> None:
    try:
        kernel.mount(_path_of(handle), target, "", kernel.MS_BIND)
    except FileNotFoundError:
        if os.fstat(handle).st_nlink > 0:  # else its program has removed it, and nothing can be mounted
            raise


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
