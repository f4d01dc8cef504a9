"""Where trials run if not on this machine, and what travels to a node and back."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.machine import Machine
from hotlap.records.requests import LaunchRequest, TurnRequest
from hotlap.records.runs import Replicate, Run

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


class LaunchQuestion(Record, frozen=True, kw_only=True, tag="launch"):
    """A request for one child alone."""

    request: LaunchRequest


class TogetherQuestion(Record, frozen=True, kw_only=True, tag="together"):
    """A request for launches that start in parallel and are not timed."""

    requests: tuple[LaunchRequest, ...]


class TurnsQuestion(Record, frozen=True, kw_only=True, tag="turns"):
    """A request for one replicate, whose arms stay on one node."""

    request: TurnRequest


class MachineQuestion(Record, frozen=True, kw_only=True, tag="machine"):
    """A request for the facts and rates of a node."""


NodeQuestion: TypeAlias = LaunchQuestion | TogetherQuestion | TurnsQuestion | MachineQuestion


class NodeAnswer(Record, frozen=True, kw_only=True):
    """The answer of a node: the one field that was asked for, or the sentence and remedy of an error."""

    runs: tuple[Run, ...] = ()
    replicate: Replicate | None = None
    machine: Machine | None = None
    error: str = ""
    remedy: str = ""
