"""The interface through which trials run.

The real executor starts children (:mod:`hotlap.trial.local`); tests use a deterministic fake; a resumed study replays
what its journal holds (:mod:`hotlap.experiment.journaled`). An executor of a cluster has several slots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol, overload

from hotlap.errors import HotlapError
from hotlap.records import (
    CollectiveRates,
    CollectivesRequest,
    Isolation,
    LaunchRequest,
    Machine,
    Replicate,
    Run,
    Slot,
    TurnRequest,
)

THIS_MACHINE = Slot(name="this machine")


class Executor(Protocol):
    """Runs requests and reports how they ended. A script that crashes, hangs or runs out of
    memory is a result (see ``Run.ending``), not an exception."""

    def machine(self) -> Machine:
        """Facts about the machine of the first slot and its measured ceilings."""
        ...

    def collectives(self, request: CollectivesRequest) -> CollectiveRates:
        """Time collectives on the machine of the first slot. Raises :class:`HotlapError` where that is impossible."""
        ...

    def slots(self) -> tuple[Slot, ...]:
        """Where trials can run at the same time without disturbing each other; one at least. Their hardware and
        software are alike."""
        ...

    @overload
    def submit(self, request: LaunchRequest, slot: Slot) -> Future[Run]: ...

    @overload
    def submit(self, request: TurnRequest, slot: Slot) -> Future[Replicate]: ...

    def submit(self, request: LaunchRequest | TurnRequest, slot: Slot) -> Future[Run] | Future[Replicate]:
        """Run a whole request on one slot, after earlier requests to that slot: arms can be compared only on the same
        hardware. Cancelling the future ends its processes."""
        ...

    def submit_together(self, requests: Sequence[LaunchRequest], slot: Slot) -> Future[tuple[Run, ...]]:
        """Run launches that are not timed on one slot: they start in parallel, so that a slow start costs time once,
        and then take their steps one after the other. The caller makes sure that all of them fit into memory."""
        ...

    def submit_replicates(self, requests: Sequence[TurnRequest], slot: Slot) -> Future[tuple[Replicate, ...]]:
        """Take replicates on one slot: the arms of all start in parallel, and then one replicate after the other is
        timed while the rest is frozen. The caller makes sure that all of them fit into memory."""
        ...


class OneSlot(ABC):
    """An executor that does one thing after the other on this machine: it has finished when ``submit`` returns."""

    @abstractmethod
    def machine(self) -> Machine:
        """Facts about this machine and its measured ceilings."""

    def collectives(self, request: CollectivesRequest) -> CollectiveRates:
        """Time collectives; an executor that starts no processes has none. Raises :class:`HotlapError`."""
        raise HotlapError(
            f"{type(self).__name__} measures no collectives.", remedy="Use an executor that starts processes."
        )

    @abstractmethod
    def launch(self, request: LaunchRequest) -> Run:
        """One child alone, to its last wanted step."""

    @abstractmethod
    def take_turns(self, request: TurnRequest) -> Replicate:
        """One fresh launch of every arm, taking turns block by block."""

    def slots(self) -> tuple[Slot, ...]:
        """This machine."""
        return (THIS_MACHINE,)

    @overload
    def submit(self, request: LaunchRequest, slot: Slot) -> Future[Run]: ...

    @overload
    def submit(self, request: TurnRequest, slot: Slot) -> Future[Replicate]: ...

    def submit(self, request: LaunchRequest | TurnRequest, slot: Slot) -> Future[Run] | Future[Replicate]:
        """Run the request now. Its exceptions, KeyboardInterrupt too, are raised here."""
        if isinstance(request, LaunchRequest):
            run: Future[Run] = Future()
            run.set_result(self.launch(request))
            return run
        turns: Future[Replicate] = Future()
        turns.set_result(self.take_turns(request))
        return turns

    def launch_together(self, requests: Sequence[LaunchRequest]) -> tuple[Run, ...]:
        """Run launches that are not timed; by default one after the other."""
        return tuple(self.launch(it) for it in requests)

    def submit_together(self, requests: Sequence[LaunchRequest], slot: Slot) -> Future[tuple[Run, ...]]:
        """Run the requests now, as :meth:`submit` does one."""
        runs: Future[tuple[Run, ...]] = Future()
        runs.set_result(self.launch_together(requests))
        return runs

    def take_replicates(self, requests: Sequence[TurnRequest]) -> tuple[Replicate, ...]:
        """Take replicates; by default each starts after the one before it has ended."""
        return tuple(self.take_turns(it) for it in requests)

    def submit_replicates(self, requests: Sequence[TurnRequest], slot: Slot) -> Future[tuple[Replicate, ...]]:
        """Take them now, as :meth:`submit` does one."""
        taken: Future[tuple[Replicate, ...]] = Future()
        taken.set_result(self.take_replicates(requests))
        return taken


class MakeExecutor(Protocol):
    """Creates the executor of a study in that folder, with the requested isolation of trials."""

    def __call__(self, directory: Path, isolation: Isolation, /) -> Executor: ...
