"""Where trials run if not on this machine."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record

ClusterKind: TypeAlias = Literal["ray", "slurm"]


class TrialCluster(Record, frozen=True, kw_only=True):
    """The cluster whose nodes run the trials of a study.

    ``address`` is that of a Ray cluster (empty: the one that runs here). ``nodes`` bounds how many nodes are used (0:
    all that are free, on Slurm one). ``settings`` are options of Slurm jobs by submitit's names (``partition``,
    ``timeout_min``).
    """

    kind: ClusterKind
    address: str = ""
    nodes: int = 0
    settings: tuple[tuple[str, str], ...] = ()
