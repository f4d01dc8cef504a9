"""Which hosts a trial connects to, as the kernel sees it: Python does not see native code's (gRPC, libcurl, NCCL).

The sockets of a network namespace are listed in ``/proc/PID/net/``; those of a process are the ones that its
descriptors refer to by inode (proc_pid_net(5), proc_pid_fd(5)).
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from itertools import islice
from pathlib import Path
from typing import Protocol

import msgspec

from hotlap.records import Contact

FILE = "connections.jsonl"
"""The file in a run's folder to which its processes add, as :mod:`hotlap.runtime.connections` names it."""

MOST_HOSTS = 100
_MOST_DESCRIPTORS = 4096
_MOST_SOCKETS = 20_000
_LARGEST_FILE_BYTES = 2**20
_TABLES = ("tcp", "tcp6", "udp", "udp6")
_LISTENING = "0A"
_NAME_LOOKUP = 53


class HasPid(Protocol):
    """A process, as psutil has it."""

    @property
    def pid(self) -> int: ...


def remote_peers(processes: Iterable[HasPid]) -> frozenset[Contact]:
    """The other ends of these processes' connections at this moment, but for this machine itself, for connections that
    others opened, and for name servers. What cannot be read, of a process that ended or of another user, is left out.
    """
    inodes: dict[str, set[str]] = {}
    holders: dict[str, int] = {}
    for process in processes:
        with suppress(OSError):
            namespace = str(Path(f"/proc/{process.pid}/ns/net").readlink())
            inodes.setdefault(namespace, set()).update(_socket_inodes(process.pid))
            holders[namespace] = process.pid
    found: set[Contact] = set()
    for namespace, held in inodes.items():
        if held:
            found |= set(_peers(holders[namespace], held))
    return frozenset(islice(sorted(found, key=lambda it: (it.address, it.port)), MOST_HOSTS))


def merged_hosts(run_directory: Path, peers: Iterable[Contact] = (), reported: Iterable[str] = ()) -> tuple[str, ...]:
    """The hosts that a run connected to, as ``name:port``, sorted; at most a hundred.

    ``run_directory`` holds what its processes wrote down, those that sent no report too; ``peers`` are what
    :func:`remote_peers` saw, and ``reported`` the ``hosts`` of reports. This machine's own addresses are left out.
    """
    written = _written(run_directory / FILE)
    names = {it.address: it.name for it in written if it.name}
    own = _own_addresses()
    reached = [it for it in (*written, *peers) if it.port and it.address not in own]
    named = {msgspec.structs.replace(it, name=names.get(it.address, "")).host for it in reached}
    others = {it for it in reported if it.rpartition(":")[0].strip("[]") not in own}
    return tuple(sorted(named | others)[:MOST_HOSTS])


def _socket_inodes(pid: int) -> Iterator[str]:
    with os.scandir(f"/proc/{pid}/fd") as descriptors:
        for it in islice(descriptors, _MOST_DESCRIPTORS):
            with suppress(OSError):
                target = os.readlink(it.path)  # noqa: PTH115, there may be thousands
                if target.startswith("socket:["):
                    yield target[8:-1]


def _peers(pid: int, inodes: set[str]) -> Iterator[Contact]:
    for table in _TABLES:
        rows = list(_rows(Path(f"/proc/{pid}/net/{table}")))
        listening = {row[1].rpartition(":")[2] for row in rows if row[3] == _LISTENING}
        for row in rows:
            if row[9] not in inodes or row[1].rpartition(":")[2] in listening:
                continue
            (own, _), (other, port) = _endpoint(row[1]), _endpoint(row[2])
            looks_up = table.startswith("udp") and port == _NAME_LOOKUP
            if port and other != own and not looks_up and not _is_local(other):
                yield Contact(address=other, port=port)


def _rows(path: Path) -> Iterator[list[str]]:
    """The fields of each socket: its own end, the other end, state, and as the tenth its inode."""
    with suppress(OSError), path.open(encoding="ascii") as lines:
        next(lines, None)
        for line in islice(lines, _MOST_SOCKETS):
            fields = line.split()
            if len(fields) > 9:
                yield fields


def _endpoint(text: str) -> tuple[str, int]:
    """An address and port as the kernel prints them: words of 32 bits in the machine's byte order, in hexadecimal."""
    address, _, port = text.partition(":")
    words = [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
    raw = struct.pack(f"{'<' if sys.byteorder == 'little' else '>'}{len(words)}I", *words)
    return _plain(socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)), int(port, 16)


def _plain(address: str) -> str:
    """An IPv4 address as such where it was mapped into IPv6."""
    return address.removeprefix("::ffff:") if "." in address else address


def _is_local(address: str) -> bool:
    parsed = ip_address(address)
    return parsed.is_loopback or parsed.is_unspecified


def _own_addresses() -> frozenset[str]:
    """The addresses of this machine's interfaces (``/proc/net/fib_trie``, ``/proc/net/if_inet6``)."""
    found: set[str] = set()
    with suppress(OSError):
        previous = ""
        for line in Path("/proc/net/fib_trie").read_text(encoding="ascii").splitlines():
            if "host LOCAL" in line:
                found.add(previous.rpartition(" ")[2])
            previous = line.rstrip()
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
            found.add(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])))
    return frozenset(found)


def _written(path: Path) -> list[Contact]:
    """What the run's processes wrote down; the script may have written anything there instead."""
    found: list[Contact] = []
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(_LARGEST_FILE_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        for line in content.splitlines():
            with suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(line, type=Contact))
    return found
