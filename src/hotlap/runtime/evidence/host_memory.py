"""How many bytes of host memory are in use: by the C library's own count, where it keeps one.

A process's resident memory is no such count: the kernel collapses pages into huge ones, pages out what is cold and
reads it back, and so it grows for minutes in a loop that allocates nothing. glibc's ``mallinfo2`` (since 2.33) says
what is allocated and not yet freed. It leaves out the arenas of other threads and Python's own small objects, neither
of which hold tensors that a training loop keeps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import psutil

_FIELDS = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS)


def host_bytes_reader() -> Callable[[], int]:
    """A function that returns the bytes in use: those allocated, else (another C library) those resident."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        process = psutil.Process()
        return lambda: int(process.memory_info().rss)
    mallinfo2.restype = _Mallinfo2
    mallinfo2.argtypes = ()

    def allocated() -> int:
        counts = mallinfo2()
        return int(counts.uordblks + counts.hblkhd)

    return allocated
