"""Benchmarks in pieces: each finished piece is stored, and the same command goes on after it."""

from __future__ import annotations

import argparse
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hotlap.records import LaunchRequest, Machine, Replicate, Run, TurnRequest
from hotlap.trial.executor import OneSlot

Piece = TypeVar("Piece")

UNFINISHED = 75
"""The exit code of a benchmark whose time was over: that of a temporary failure (``EX_TEMPFAIL`` of ``sysexits.h``)."""


class TimeIsUp(KeyboardInterrupt):
    """The time of this call is over, and the same command goes on. A search ends by it as by Ctrl-C."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of a benchmark that goes on: where its pieces are, and how long a call may take."""
    parser.add_argument("--pieces", type=Path, help="the folder of what is finished (default: nothing is stored)")
    parser.add_argument("--minutes", type=float, help="begin nothing after so long; the same command goes on (exit 75)")


def until_of(options: argparse.Namespace) -> float | None:
    """When the time of this call is over, by the monotonic clock; None without a limit."""
    return time.monotonic() + 60 * options.minutes if options.minutes is not None else None


def check_time(until: float | None) -> None:
    """Raise :class:`TimeIsUp` after ``until``."""
    if until is not None and time.monotonic() >= until:
        raise TimeIsUp


def piece(folder: Path | None, name: str, kind: type[Piece], measure: Callable[[], Piece]) -> Piece:
    """The stored piece of that name; measured, and stored, if there is none yet. Without a folder nothing is stored."""
    if folder is None:
        return measure()
    path = folder / f"{name}.json"
    earlier = stored(path, kind)
    if earlier is not None:
        return earlier
    found = measure()
    store(path, found)
    return found


def stored(path: Path | None, kind: type[Piece]) -> Piece | None:
    """What an earlier run of the same command stored there; None if it stored nothing."""
    if path is None or not path.exists():
        return None
    return msgspec.json.decode(path.read_bytes(), type=kind)


def store(path: Path | None, found: object) -> None:
    """Replace the file at once, so that a kill leaves the old one or the new one. Without a path nothing is stored."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_bytes(msgspec.json.encode(found))
    unfinished.replace(path)


class KeptAnswers(OneSlot):
    """An executor whose answers are pieces: a request that was answered by an earlier run of the command is not made.

    Equal requests are counted, so that each has an answer of its own. Without a folder nothing is stored. A request
    that comes after ``until`` raises :class:`TimeIsUp`.
    """

    def __init__(self, inner: OneSlot, folder: Path | None, until: float | None = None) -> None:
        self._inner = inner
        self._folder = folder
        self._until = until
        self._asked: Counter[str] = Counter()

    def machine(self) -> Machine:
        return self._answer("machine", (), Machine, self._inner.machine)

    def launch(self, request: LaunchRequest) -> Run:
        return self._answer("launch", (request,), Run, partial(self._inner.launch, request))

    def launch_together(self, requests: Sequence[LaunchRequest]) -> tuple[Run, ...]:
        ask = partial(self._inner.launch_together, requests)
        return self._answer("together", requests, tuple[Run, ...], ask)

    def take_turns(self, request: TurnRequest) -> Replicate:
        return self._answer("turns", (request,), Replicate, partial(self._inner.take_turns, request))

    def take_replicates(self, requests: Sequence[TurnRequest]) -> tuple[Replicate, ...]:
        if len(requests) == 1:
            return (self.take_turns(requests[0]),)
        ask = partial(self._inner.take_replicates, requests)
        return self._answer("replicates", requests, tuple[Replicate, ...], ask)

    def _answer(self, what: str, requests: Sequence[Any], kind: type[Piece], ask: Callable[[], Piece]) -> Piece:
        digest = hashlib.sha256(msgspec.json.encode(requests)).hexdigest()[:16]
        name = f"{what}-{digest}-{self._asked[what + digest]}"
        self._asked[what + digest] += 1

        def measure() -> Piece:
            check_time(self._until)
            return ask()

        return piece(self._folder, name, kind, measure)
