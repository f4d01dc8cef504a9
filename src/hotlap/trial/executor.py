"""The port through which the search makes trials happen.

The real executor starts children (:mod:`hotlap.trial.local`); tests use a deterministic fake; a
resumed study replays what its journal holds (:mod:`hotlap.study`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from hotlap.records import Isolation, LaunchRequest, Machine, Run, TurnRequest, TurnSet


class Executor(Protocol):
    """Runs what it is asked to run and reports how that ended. A script that crashes, hangs or runs out of
    memory is a result (see ``Run.ending``), not an exception."""

    def machine(self) -> Machine:
        """Facts about this machine and its measured ceilings."""
        ...

    def launch(self, request: LaunchRequest) -> Run:
        """One child alone, to its last wanted step."""
        ...

    def take_turns(self, request: TurnRequest) -> TurnSet:
        """One fresh launch of every arm, taking turns block by block."""
        ...


class MakeExecutor(Protocol):
    """Makes the executor of a study in that folder, whose trials are isolated as asked."""

    def __call__(self, directory: Path, isolation: Isolation, /) -> Executor: ...
