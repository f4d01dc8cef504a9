"""The lines of a study's journal."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from hotlap.records import Machine, Record, Run, Source, TurnSet, Workload


class Header(Record, frozen=True, kw_only=True, tag="header"):
    """The journal's first line: all that is needed to start the same search again.

    ``options`` are the choices of the search, as it understands them.
    """

    format_version: int
    identifier: str
    started: str
    hotlap_version: str = ""
    workload: Workload
    source: Source = Source()
    options: msgspec.Raw = msgspec.Raw(b"{}")


class MachineAnswer(Record, frozen=True, kw_only=True, tag="machine"):
    """What ``Executor.machine`` answered. ``key`` names the request, and requests of one key are counted by
    ``ordinal`` from 0; ``elapsed_seconds`` count from the answer before."""

    key: str
    ordinal: int
    elapsed_seconds: float
    answer: Machine


class LaunchAnswer(Record, frozen=True, kw_only=True, tag="launch"):
    """What ``Executor.launch`` answered: one run."""

    key: str
    ordinal: int
    elapsed_seconds: float
    answer: Run


class TurnAnswer(Record, frozen=True, kw_only=True, tag="turns"):
    """What ``Executor.take_turns`` answered: one set."""

    key: str
    ordinal: int
    elapsed_seconds: float
    answer: TurnSet


Answer: TypeAlias = MachineAnswer | LaunchAnswer | TurnAnswer
