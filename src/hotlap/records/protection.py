"""What keeps a trial from changing anything outside its run folder."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record

ProtectionMode: TypeAlias = Literal["namespaces", "fence", "none"]
NetworkMode: TypeAlias = Literal["open", "none"]


class Isolation(Record, frozen=True, kw_only=True):
    """What a person chose about how trials are isolated.

    ``network``: with ``none`` trials reach nothing but loopback. ``unprotected``: go on without isolation where
    namespaces do not work, without the fence too. ``mode`` requires one way of isolating; with None the strongest that
    works is used.
    """

    network: NetworkMode = "open"
    unprotected: bool = False
    mode: ProtectionMode | None = None


class Protection(Record, frozen=True, kw_only=True):
    """How trials are isolated on this machine.

    ``namespaces``: every write of every process goes to a layer of the run's own (overlayfs). ``fence``: writes of
    Python code are redirected, and the kernel (Landlock) denies all others. ``none``: only writes of Python code are
    redirected. ``pid_namespace`` says whether the kernel ends every process of a run together with its first.
    ``shared_folders`` are caches that trials write to as the script would. ``gaps`` are sentences on what is not
    protected, ``reasons`` on why no stronger mode is in use.
    """

    mode: ProtectionMode = "none"
    network: NetworkMode = "open"
    pid_namespace: bool = False
    shared_folders: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
