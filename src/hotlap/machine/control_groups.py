"""The processor and memory limits that Linux control groups set for this process.

Source: the kernel's "Control Group v2" (``cpu.max``, ``memory.max``) and, for version 1, "CFS Bandwidth Control" and
"Memory Resource Controller". A limit holds for a group and everything below it, so that the effective one is the least
on the way from the process's own group up to the mount point. Both versions may be mounted at once; both are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

_Number = TypeVar("_Number", int, float)

# Version 1 writes "no limit" as the largest multiple of a page; no machine has so much.
_NO_MEMORY_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Limits:
    """What the control groups allow; None where they set no limit. ``cores`` may be a fraction."""

    cores: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mounted hierarchy: its mount point, the part that is mounted there, and its controllers (v2: none named)."""

    point: PurePosixPath
    shows: PurePosixPath
    version: int
    controllers: frozenset[str]


def limits(root: Path = Path("/")) -> Limits:
    """The limits of the current process, read from ``proc`` and ``sys`` below ``root``.

    Never raises for files that are missing or invalid: what cannot be read sets no limit.
    """
    memberships = parse_memberships(_read(root / "proc/self/cgroup"))
    cores: list[float] = []
    memory: list[int] = []
    for mount in _mounts(_read(root / "proc/self/mountinfo")):
        for folder in _folders(mount, memberships, root):
            cores += _present(_cores_of(folder, mount.version))
            memory += _present(_memory_of(folder, mount.version))
    return Limits(cores=min(cores, default=None), memory_bytes=min(memory, default=None))


def quota_group(root: Path = Path("/")) -> Path | None:
    """The folder of the group whose processor quota is the tightest; None where there is no quota."""
    memberships = parse_memberships(_read(root / "proc/self/cgroup"))
    found = [
        (cores, folder)
        for mount in _mounts(_read(root / "proc/self/mountinfo"))
        for folder in _folders(mount, memberships, root)
        for cores in _present(_cores_of(folder, mount.version))
    ]
    return min(found)[1] if found else None


def used_seconds(folder: Path) -> float | None:
    """Processor seconds that a group and all below it have used so far (``cpu.stat``; ``cpuacct.usage`` of version 1);
    None where that is not reported."""
    for line in _read(folder / "cpu.stat").splitlines():
        name, _, microseconds = line.partition(" ")
        if name == "usage_usec" and (used := _integer(microseconds)) is not None:
            return used / 1e6
    nanoseconds = _integer(_read(folder / "cpuacct.usage"))
    return None if nanoseconds is None else nanoseconds / 1e9


def available_memory_shares(root: Path = Path("/")) -> list[float]:
    """Of each group that limits this process's memory, the share of the limit that is not in use; page cache that was
    not used lately (``inactive_file``) counts as free."""
    memberships = parse_memberships(_read(root / "proc/self/cgroup"))
    shares = []
    for mount in _mounts(_read(root / "proc/self/mountinfo")):
        for folder in _folders(mount, memberships, root):
            limit = _memory_of(folder, mount.version)
            used = _integer(_read(folder / ("memory.current" if mount.version == 2 else "memory.usage_in_bytes")))
            if limit and used is not None:
                shares.append(1 - max(0, used - _droppable_bytes(folder)) / limit)
    return shares


def _droppable_bytes(folder: Path) -> int:
    """Page cache of a group that the kernel drops before it ends a process (``memory.stat``)."""
    for line in _read(folder / "memory.stat").splitlines():
        name, _, count = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return _integer(count) or 0
    return 0


def parse_cpu_max(text: str) -> float | None:
    """Cores that a ``cpu.max`` allows (``"150000 100000"`` is 1.5); None for ``max`` and for invalid text."""
    quota, _, period = text.strip().partition(" ")
    return parse_quota(quota, period or "100000")


def parse_quota(quota: str, period: str) -> float | None:
    """Cores that a quota and a period, both in microseconds, allow; None where there is no quota (-1, ``max``)."""
    quota_microseconds, period_microseconds = _integer(quota), _integer(period)
    if quota_microseconds is None or period_microseconds is None:
        return None
    if quota_microseconds <= 0 or period_microseconds <= 0:
        return None
    return quota_microseconds / period_microseconds


def parse_memory(text: str) -> int | None:
    """Bytes that a ``memory.max`` or ``memory.limit_in_bytes`` allows; None for no limit and for invalid text."""
    limit = _integer(text)
    return limit if limit is not None and 0 < limit < _NO_MEMORY_LIMIT_BYTES else None


def parse_memberships(text: str) -> dict[str, PurePosixPath]:
    """The group of each controller from ``/proc/self/cgroup``; version 2 has the empty name."""
    groups: dict[str, PurePosixPath] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, group = rest.partition(":")
        if number.isdecimal() and colon and group.startswith("/"):
            groups.update(dict.fromkeys(controllers.split(","), PurePosixPath(group)))
    return groups


def _mounts(mountinfo: str) -> Iterator[_Mount]:
    """The control group hierarchies among the lines of ``/proc/self/mountinfo`` (see proc(5) for its fields)."""
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if not separator or len(fields) < 5 or len(kind) < 3 or kind[0] not in {"cgroup", "cgroup2"}:
            continue
        yield _Mount(
            point=PurePosixPath(fields[4]),
            shows=PurePosixPath(fields[3]),
            version=2 if kind[0] == "cgroup2" else 1,
            controllers=frozenset(kind[2].split(",")),
        )


def _folders(mount: _Mount, memberships: dict[str, PurePosixPath], root: Path) -> Iterator[Path]:
    """The folders of the process's group and of all groups above it, within one mounted hierarchy."""
    wanted = {""} if mount.version == 2 else mount.controllers & {"cpu", "memory"}
    for controller in wanted & set(memberships):
        group = memberships[controller]
        # In a container the mount shows only the container's part of the hierarchy; a group outside of that
        # part (another namespace's view) leaves the mount point itself as the nearest group that can be seen.
        inside = group.relative_to(mount.shows) if group.is_relative_to(mount.shows) else PurePosixPath()
        if ".." in inside.parts:
            inside = PurePosixPath()
        top = root / mount.point.relative_to("/") if mount.point.is_absolute() else root / mount.point
        folder = top / inside
        yield folder
        yield from (top / parent for parent in inside.parents)


def _cores_of(folder: Path, version: int) -> float | None:
    if version == 2:
        return parse_cpu_max(_read(folder / "cpu.max"))
    return parse_quota(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _memory_of(folder: Path, version: int) -> int | None:
    return parse_memory(_read(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")))


def _present(value: _Number | None) -> list[_Number]:
    return [] if value is None else [value]


def _integer(text: str) -> int | None:
    """A decimal integer of sane length, else None (no kernel file holds more than twenty digits)."""
    digits = text.strip()
    unsigned = digits.removeprefix("-")
    return int(digits) if unsigned.isascii() and unsigned.isdecimal() and len(unsigned) <= 20 else None


def _read(path: Path) -> str:
    """A small kernel file, or nothing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
