"""The calls of Linux that isolate a process, or shorten what it writes, and that Python 3.11 has no function for.

Each raises :class:`OSError` as functions of :mod:`os` do. Sources: the manual pages unshare(2), mount(2),
pivot_root(2), prctl(2), capabilities(7), user_namespaces(7) and fallocate(2).
"""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x2, 0x4, 0x8
MS_REMOUNT, MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC, MS_PRIVATE = 0x20, 0x400, 0x800, 0x1000, 0x4000, 0x40000
MS_RELATIME = 0x200000
MNT_DETACH = 0x2

_FALLOC_FL_COLLAPSE_RANGE = 0x8

SIGKILL = 9
_SIG_DFL = 0
_IGNORED_BY_PYTHON = (13, 25)
"""SIGPIPE and SIGXFSZ: what Python ignores, its children would ignore too."""

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
_CAP_SYS_MODULE, _CAP_SYS_RAWIO, _CAP_SYS_ADMIN, _CAP_SYS_BOOT, _CAP_SYS_TIME = 16, 17, 21, 22, 25
_HARMFUL = (_CAP_SYS_MODULE, _CAP_SYS_RAWIO, _CAP_SYS_ADMIN, _CAP_SYS_BOOT, _CAP_SYS_TIME)
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str = "") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what or None)
    return result


def system_call(number: int, *arguments: object) -> int:
    """A system call by its number."""
    return _check(_libc.syscall(ctypes.c_long(number), *arguments))


def unshare(flags: int) -> None:
    """Leave the namespaces named by ``CLONE_NEW...`` flags for new ones."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    encoded = os.fsencode(source), os.fsencode(target), os.fsencode(kind) or None
    _check(_libc.mount(*encoded, ctypes.c_ulong(flags), os.fsencode(data) or None), target)


def unmount(target: str, flags: int = 0) -> None:
    """umount2(2)."""
    _check(_libc.umount2(os.fsencode(target), flags), target)


def pivot_root(new: str, old: str) -> None:
    """Make ``new`` the root of this mount namespace; the previous root moves to ``old`` below it."""
    machine = os.uname().machine
    if machine not in _SYS_PIVOT_ROOT:
        raise OSError(38, f"hotlap does not know the number of pivot_root on {machine}")
    system_call(_SYS_PIVOT_ROOT[machine], os.fsencode(new), os.fsencode(old))


def end_with_parent(signal: int) -> None:
    """Have the kernel send this process a signal when the process that started it ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal), 0, 0, 0), "PR_SET_PDEATHSIG")


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def heed_signals(*more: int) -> None:
    """Restore the default action of the signals that Python ignores, and of ``more``."""
    for number in (*_IGNORED_BY_PYTHON, *more):
        _libc.signal(number, _SIG_DFL)


def renounce_privileges() -> None:
    """Keep executed programs from gaining rights that this process lacks (``sudo``)."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0), "PR_SET_NO_NEW_PRIVS")


def remove_beginning(descriptor: int, count: int) -> None:
    """Remove the first ``count`` bytes of a file, a multiple of its file system's blocks and less than its size, at
    once: no write of another process falls in between."""
    _check(_libc.fallocate(descriptor, _FALLOC_FL_COLLAPSE_RANGE, ctypes.c_long(0), ctypes.c_long(count)), "fallocate")


def may_administrate() -> bool:
    """Whether this process has CAP_SYS_ADMIN in its namespace: then mount namespaces need no user namespace."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        row = next((line for line in status if line.startswith("CapEff:")), "CapEff: 0")
    return bool(int(row.split()[1], 16) >> _CAP_SYS_ADMIN & 1)


def drop_harmful_capabilities() -> None:
    """Keep programs that root executes from unmounting, loading modules, setting the clock and rebooting.

    Does nothing where this process may not reduce its bounding set, since then it has none of these rights.
    """
    for capability in _HARMFUL:
        _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)


def in_first_user_namespace() -> bool:
    """Whether user numbers here are those of the machine; overlayfs stores its attributes elsewhere where they are
    not."""
    return _read("/proc/self/uid_map").split() == ["0", "0", "4294967295"]


def become_root_of_own_namespace() -> None:
    """Enter a user namespace in which this user may mount. User numbers are kept as far as permitted: an
    administrator's process keeps all, an ordinary user's only its own (others appear as ``nobody``)."""
    tables = [f"/proc/{os.getpid()}/{name}" for name in ("uid_map", "gid_map")]
    whole = [_identical(_read(it)) for it in tables]
    own = [f"{os.geteuid()} {os.geteuid()} 1", f"{os.getegid()} {os.getegid()} 1"]
    entered, tell_entered = os.pipe()
    helper = os.fork()
    if helper == 0:  # stays outside: only from there can the numbers of others be mapped
        os.close(tell_entered)
        os.read(entered, 1)
        try:
            for path, text in zip(tables, whole, strict=True):
                _write(path, text)
        except OSError:
            os._exit(1)
        os._exit(0)
    unshare(CLONE_NEWUSER)
    os.close(tell_entered)
    os.close(entered)
    _, status = os.waitpid(helper, 0)
    if status != 0:
        _write("/proc/self/setgroups", "deny")
        for path, text in zip(reversed(tables), reversed(own), strict=True):
            _write(path, text)


def _identical(table: str) -> str:
    """The numbers that exist here, each mapped to itself."""
    rows = [line.split() for line in table.splitlines()]
    return "\n".join(f"{first} {first} {count}" for first, _, count in rows)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)


def start_loopback() -> None:
    """Bring up the loopback device of a new network namespace."""
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
