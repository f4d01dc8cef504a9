"""An executor with a slot for each node. How a node is reached is a :class:`Node`: by Ray, or by Slurm."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar, overload

import msgspec

from hotlap.cluster.questions import (
    CollectivesQuestion,
    LaunchQuestion,
    MachineQuestion,
    NodeAnswer,
    NodeQuestion,
    ReplicatesQuestion,
    TogetherQuestion,
)
from hotlap.errors import ClusterError, HotlapError
from hotlap.records import (
    CollectiveRates,
    CollectivesRequest,
    LaunchRequest,
    Machine,
    Replicate,
    Run,
    Slot,
    TurnRequest,
)

_Answer = TypeVar("_Answer")
_Read_co = TypeVar("_Read_co", covariant=True)

_ANSWERS = msgspec.json.Decoder(NodeAnswer)
"""Made before any thread begins: msgspec ends the process where two threads make the first one of a type at once."""


class NodeLostError(Exception):
    """A node, or the job on it, ended before it answered."""


class Node(Protocol):
    """One node, which answers one question at a time."""

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        ...

    def answer(self, question: NodeQuestion) -> bytes:
        """The :class:`NodeAnswer` in JSON. Raises :class:`NodeLostError` if the node is lost or ``stop`` is called."""
        ...

    def stop(self) -> None:
        """End whatever it runs."""
        ...


_Node = TypeVar("_Node", bound=Node)


@dataclass(slots=True)
class _Place:
    node: Node
    busy: threading.Lock
    waiting: int = 0
    lost: bool = False


class ClusterExecutor:
    """Runs requests on nodes that are alike.

    A request whose node is lost is run again on another one: nothing was learned from it, and no arm of it ran
    elsewhere. With the last node, :class:`ClusterError` is raised; the study can be resumed.
    """

    def __init__(self, nodes: Sequence[Node], machine: Machine) -> None:
        self._places = {it.name: _Place(it, threading.Lock()) for it in nodes}
        self._lock = threading.Lock()
        self._machine = machine

    def machine(self) -> Machine:
        """Facts about the first node and its measured rates."""
        return self._machine

    def collectives(self, request: CollectivesRequest) -> CollectiveRates:
        """Collectives between processes of the first node that is left."""
        asked = self._begin(CollectivesQuestion(request=request), self.slots()[0], _rates)
        try:
            return asked.result()
        finally:
            asked.cancel()

    def slots(self) -> tuple[Slot, ...]:
        """The nodes that are left."""
        with self._lock:
            left = tuple(Slot(name=name) for name, it in self._places.items() if not it.lost)
        if not left:
            raise _none_left()
        return left

    @overload
    def submit(self, request: LaunchRequest, slot: Slot) -> Future[Run]: ...

    @overload
    def submit(self, request: TurnRequest, slot: Slot) -> Future[Replicate]: ...

    def submit(self, request: LaunchRequest | TurnRequest, slot: Slot) -> Future[Run] | Future[Replicate]:
        """Run it on that node, or on another if that one is lost. Cancelling ends its processes."""
        if isinstance(request, LaunchRequest):
            return self._begin(LaunchQuestion(request=request), slot, _only_run)
        return self._begin(ReplicatesQuestion(requests=(request,)), slot, _replicate)

    def submit_together(self, requests: Sequence[LaunchRequest], slot: Slot) -> Future[tuple[Run, ...]]:
        """Run launches that are not timed on one node."""
        return self._begin(TogetherQuestion(requests=tuple(requests)), slot, _runs)

    def submit_replicates(self, requests: Sequence[TurnRequest], slot: Slot) -> Future[tuple[Replicate, ...]]:
        """Take replicates on one node, whose arms start in parallel."""
        read = partial(_replicates, len(requests))
        return self._begin(ReplicatesQuestion(requests=tuple(requests)), slot, read)

    def _begin(self, question: NodeQuestion, slot: Slot, read: _Read[_Answer]) -> Future[_Answer]:
        asked: _Asked[_Answer] = _Asked()
        # A daemon: at the end of the program it does not wait for a node.
        threading.Thread(target=partial(self._work, asked, question, slot.name, read), daemon=True).start()
        return asked

    def _work(self, asked: _Asked[_Answer], question: NodeQuestion, name: str, read: _Read[_Answer]) -> None:
        lost: list[str] = []
        try:
            while True:
                place = self._place(name, lost)
                try:
                    with place.busy:
                        asked.begin(place.node)
                        found = answer_of(place.node.answer(question))
                        asked.end()
                    break
                except NodeLostError:
                    asked.end()
                    if asked.stopped:
                        asked.set_exception(ClusterError("The request was cancelled.", remedy="Resume the study."))
                        return
                    lost.append(place.node.name)
                    self._forget(place)
                finally:
                    self._left(place)
            asked.set_result(read(found, lost, place.node.name))
        except HotlapError as error:
            asked.set_exception(error)
        except BaseException as error:  # raised again; on any error whoever waits is released
            asked.set_exception(error)
            raise

    def _place(self, name: str, lost: Sequence[str]) -> _Place:
        """The node of that name; after it was lost, the one with the shortest queue."""
        with self._lock:
            left = [it for it in self._places.values() if not it.lost]
            if not left:
                raise _none_left(lost)
            wanted = self._places.get(name)
            found = wanted if wanted is not None and not wanted.lost else min(left, key=lambda it: it.waiting)
            found.waiting += 1
            return found

    def _left(self, place: _Place) -> None:
        with self._lock:
            place.waiting -= 1

    def _forget(self, place: _Place) -> None:
        with self._lock:
            place.lost = True


class _Asked(Future[_Answer]):
    """A future whose cancelling stops the node that works on it."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = False
        self._node: Node | None = None
        self._change = threading.Lock()

    def begin(self, node: Node) -> None:
        """Note the node that works on it. Raises :class:`NodeLostError` if it was cancelled meanwhile."""
        with self._change:
            if self.stopped:
                raise NodeLostError
            self._node = node

    def end(self) -> None:
        """Note that no node works on it."""
        with self._change:
            self._node = None

    def cancel(self) -> bool:
        """End the processes of a request that is not done."""
        if self.done():
            return False
        with self._change:
            self.stopped = True
            node, self._node = self._node, None
        if node is not None:
            node.stop()
        return True


class _Read(Protocol[_Read_co]):
    def __call__(self, answer: NodeAnswer, lost: Sequence[str], node: str, /) -> _Read_co: ...


def _only_run(answer: NodeAnswer, lost: Sequence[str], node: str) -> Run:
    return answer.runs[0]


def _runs(answer: NodeAnswer, lost: Sequence[str], node: str) -> tuple[Run, ...]:
    return answer.runs


def _rates(answer: NodeAnswer, lost: Sequence[str], node: str) -> CollectiveRates:
    assert answer.collectives is not None
    return answer.collectives


def _replicate(answer: NodeAnswer, lost: Sequence[str], node: str) -> Replicate:
    return _replicates(1, answer, lost, node)[0]


def _replicates(count: int, answer: NodeAnswer, lost: Sequence[str], node: str) -> tuple[Replicate, ...]:
    if len(answer.replicates) != count:
        raise _unreadable(f"it has {len(answer.replicates)} replicates instead of {count}")
    return tuple(msgspec.structs.replace(it, node=node, lost_nodes=tuple(lost)) for it in answer.replicates)


def answer_of(text: bytes) -> NodeAnswer:
    """What a node answered. Raises :class:`ClusterError` for an error there and for what is not an answer."""
    try:
        answer = _ANSWERS.decode(text)
    except msgspec.MsgspecError as error:
        raise _unreadable(str(error)) from error
    if answer.error:
        raise ClusterError(answer.error, remedy=answer.remedy)
    return answer


def _unreadable(why: str) -> ClusterError:
    return ClusterError(
        f"A node's answer cannot be read: {why}.", remedy="Use the same version of hotlap on all nodes."
    )


def machines_of(nodes: Sequence[_Node]) -> list[tuple[_Node, Machine]]:
    """The nodes that answer, with what they are, asked at the same time."""
    found: dict[str, Machine] = {}

    def ask(node: _Node) -> None:
        try:
            machine = answer_of(node.answer(MachineQuestion())).machine
        except (NodeLostError, ClusterError):
            return
        if machine is not None:
            found[node.name] = machine

    threads = [threading.Thread(target=ask, args=(it,), daemon=True) for it in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [(it, found[it.name]) for it in nodes if it.name in found]


def _none_left(lost: Sequence[str] = ()) -> ClusterError:
    names = f" Lost: {', '.join(lost)}." if lost else ""
    return ClusterError(
        f"No node of the cluster is left.{names}",
        remedy="Resume the study with `--resume` once nodes are back: nothing is measured twice.",
    )
