"""The lines of a study's journal."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from hotlap.records import CollectiveRates, Machine, Record, Replicate, Run, Source, Workload


class Header(Record, frozen=True, kw_only=True, tag="header"):
    """The journal's first line: everything needed to start the same search again.

    ``options`` are the options of the search, in its own type.
    """

    format_version: int
    identifier: str
    started: str
    hotlap_version: str = ""
    workload: Workload
    source: Source = Source()
    options: msgspec.Raw = msgspec.Raw(b"{}")


class MachineAnswer(Record, frozen=True, kw_only=True, tag="machine"):
    """The answer of ``Executor.machine``.

    ``key`` names the request, and ``ordinal`` counts requests with the same key from 0; ``elapsed_seconds`` is the time
    since the previous answer.
    """

    key: str
    ordinal: int
    elapsed_seconds: float
    answer: Machine


class LaunchAnswer(Record, frozen=True, kw_only=True, tag="launch"):
    """The answer of ``Executor.launch``: one run."""

    key: str
    ordinal: int
    elapsed_seconds: float
    answer: Run


class TurnAnswer(Record, frozen=True, kw_only=True, tag="turns"):
    """The answer of ``Executor.take_turns``: one replicate."""

    key: str
    ordinal: int
    elapsed_seconds: float
    answer: Replicate


class CollectivesAnswer(Record, frozen=True, kw_only=True, tag="collectives"):
    """The answer of ``Executor.collectives``."""

    key: str
    ordinal: int
    elapsed_seconds: float
    answer: CollectiveRates


Answer: TypeAlias = MachineAnswer | LaunchAnswer | TurnAnswer | CollectivesAnswer
