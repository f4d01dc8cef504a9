"""Landlock: the kernel denies this process and its children all writes except below some folders.

See landlock(7). Landlock does not cover modes, owners, times and extended attributes: those can still be changed.
Before its third version it does not cover truncation by path either.
"""

from __future__ import annotations

import ctypes
import os
import stat

from hotlap.sandbox.kernel import renounce_privileges, system_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GIVE_VERSION, _RULE_PATH_BENEATH = 1, 1
_WRITE_FILE, _REMOVE_DIR, _REMOVE_FILE = 1 << 1, 1 << 4, 1 << 5
_MAKE = sum(1 << bit for bit in range(6, 13))
"""Devices, folders, files, sockets, pipes, block devices, symbolic links."""
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_OF_FILES = _WRITE_FILE | _TRUNCATE
TRUNCATE_VERSION = 3


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def version() -> int:
    """The version of Landlock's interface here; 0 where there is none."""
    try:
        return system_call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_GIVE_VERSION))
    except OSError:
        return 0


def forbid_writing(but_below: Iterable[str]) -> None:
    """Deny all writes except below these folders (or to these files); missing paths are skipped.

    Raises :class:`OSError` where the kernel refuses.
    """
    rights = _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE
    known = version()
    rights |= (_REFER if known >= 2 else 0) | (_TRUNCATE if known >= TRUNCATE_VERSION else 0)
    attributes = _Ruleset(rights)
    ruleset = system_call(
        _CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes)), ctypes.c_uint32(0)
    )
    try:
        for path in but_below:
            _allow(ruleset, path, rights)
        renounce_privileges()
        system_call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        rule = _PathBeneath(rights, descriptor)
        system_call(
            _ADD_RULE,
            ctypes.c_int(ruleset),
            ctypes.c_int(_RULE_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(descriptor)
