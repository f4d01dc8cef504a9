"""What travels to a node and back, as JSON: the requests of the executor's port, and their answers."""

from __future__ import annotations

from typing import TypeAlias

from hotlap.records import (
    CollectiveRates,
    CollectivesRequest,
    LaunchRequest,
    Machine,
    Record,
    Replicate,
    Run,
    TurnRequest,
)


class LaunchQuestion(Record, frozen=True, kw_only=True, tag="launch"):
    """A request for one child alone."""

    request: LaunchRequest


class TogetherQuestion(Record, frozen=True, kw_only=True, tag="together"):
    """A request for launches that start in parallel and are not timed."""

    requests: tuple[LaunchRequest, ...]


class ReplicatesQuestion(Record, frozen=True, kw_only=True, tag="replicates"):
    """A request for replicates, all of whose arms start in parallel and stay on one node."""

    requests: tuple[TurnRequest, ...]


class MachineQuestion(Record, frozen=True, kw_only=True, tag="machine"):
    """A request for the facts and rates of a node."""


class CollectivesQuestion(Record, frozen=True, kw_only=True, tag="collectives"):
    """A request for the collectives between processes of a node."""

    request: CollectivesRequest


NodeQuestion: TypeAlias = LaunchQuestion | TogetherQuestion | ReplicatesQuestion | MachineQuestion | CollectivesQuestion


class NodeAnswer(Record, frozen=True, kw_only=True):
    """The answer of a node: the one field that was asked for, or the sentence and remedy of an error."""

    runs: tuple[Run, ...] = ()
    replicates: tuple[Replicate, ...] = ()
    machine: Machine | None = None
    collectives: CollectiveRates | None = None
    error: str = ""
    remedy: str = ""
