"""Requests spread over nodes, lost nodes, and what travels: with nodes that are arithmetic."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from hotlap.cluster.alike import largest_group
from hotlap.cluster.executor import ClusterExecutor, NodeLostError, machines_of
from hotlap.cluster.journey import Parcel, moved, packed, returned, unpacked
from hotlap.cluster.questions import (
    CollectivesQuestion,
    LaunchQuestion,
    MachineQuestion,
    NodeAnswer,
    NodeQuestion,
    ReplicatesQuestion,
)
from hotlap.errors import ClusterError
from hotlap.records import (
    Assignment,
    CollectiveRate,
    CollectiveRates,
    CollectivesRequest,
    LaunchRequest,
    Machine,
    Replicate,
    Run,
    Slot,
    Stopped,
    TurnRequest,
    Workload,
)

HERE = Workload(kind="script", target="/project/train.py", directory="/project", python="/env/bin/python")
TURNS = TurnRequest(arms=(Assignment(workload=HERE), Assignment(workload=HERE)), rounds=1)


class ArithmeticNode:
    """Answers at once, waits until it is stopped, or is lost."""

    def __init__(
        self,
        name: str,
        *,
        lost: bool = False,
        waits: bool = False,
        machine: Machine | None = None,
        replicates: int = 1,
    ) -> None:
        self.name = name
        self._replicates = replicates
        self.asked: list[NodeQuestion] = []
        self.working = threading.Event()
        self.stopped = threading.Event()
        self._lost, self._waits, self._machine = lost, waits, machine or Machine(processor="one")

    def answer(self, question: NodeQuestion) -> bytes:
        self.asked.append(question)
        self.working.set()
        if self._waits:
            self.stopped.wait(60)
            raise NodeLostError
        if self._lost:
            raise NodeLostError
        if isinstance(question, MachineQuestion):
            return msgspec.json.encode(NodeAnswer(machine=self._machine))
        if isinstance(question, CollectivesQuestion):
            rate = CollectiveRate(
                name="all-reduce",
                backend="gloo",
                processes=question.request.processes,
                latency_seconds=1e-4,
                bytes_per_second=1e9,
            )
            return msgspec.json.encode(NodeAnswer(collectives=CollectiveRates(rates=(rate,))))
        run = Run(ending=Stopped())
        replicate = Replicate(runs=(run, run), rounds=((1.0,), (2.0,)))
        return msgspec.json.encode(NodeAnswer(runs=(run,), replicates=(replicate,) * self._replicates))

    def stop(self) -> None:
        self.stopped.set()


def executor_of(*nodes: ArithmeticNode) -> ClusterExecutor:
    return ClusterExecutor(nodes, Machine())


def test_each_replicate_runs_on_the_node_of_its_slot() -> None:
    one, two = ArithmeticNode("one"), ArithmeticNode("two")
    executor = executor_of(one, two)
    asked = [executor.submit(TURNS, slot) for slot in executor.slots()]
    assert [it.result(60).node for it in asked] == ["one", "two"]
    assert len(one.asked) == len(two.asked) == 1


def test_a_replicate_of_a_lost_node_is_taken_whole_on_another() -> None:
    one, two = ArithmeticNode("one", lost=True), ArithmeticNode("two")
    executor = executor_of(one, two)
    found = executor.submit(TURNS, Slot(name="one")).result(60)
    assert (found.node, found.lost_nodes) == ("two", ("one",))
    assert executor.slots() == (Slot(name="two"),)
    assert executor.submit(TURNS, Slot(name="one")).result(60).lost_nodes == (), "it is not asked again"


def test_collectives_are_measured_on_the_first_node_that_is_left() -> None:
    one, two = ArithmeticNode("one", lost=True), ArithmeticNode("two")
    found = executor_of(one, two).collectives(CollectivesRequest(processes=4))
    assert [it.processes for it in found.rates] == [4]
    assert [type(it) for it in two.asked] == [CollectivesQuestion]


def test_without_a_node_the_study_can_be_resumed() -> None:
    executor = executor_of(ArithmeticNode("one", lost=True))
    with pytest.raises(ClusterError, match=r"No node of the cluster is left\. Lost: one\. Resume the study"):
        executor.submit(LaunchRequest(assignment=Assignment(workload=HERE), steps=1), Slot(name="one")).result(60)
    with pytest.raises(ClusterError):
        executor.slots()


def test_cancelling_stops_what_the_node_runs() -> None:
    node = ArithmeticNode("one", waits=True)
    asked = executor_of(node).submit(TURNS, Slot(name="one"))
    assert node.working.wait(60)
    assert asked.cancel()
    with pytest.raises(ClusterError, match="cancelled"):
        asked.result(60)
    assert node.stopped.is_set()
    assert not asked.cancel(), "it has ended"


def test_a_request_that_is_cancelled_while_it_waits_is_not_run() -> None:
    node = ArithmeticNode("one", waits=True)
    executor = executor_of(node)
    first = executor.submit(TURNS, Slot(name="one"))
    assert node.working.wait(60)
    second = executor.submit(TURNS, Slot(name="one"))
    assert second.cancel()
    assert not node.stopped.is_set(), "the first one goes on"
    first.cancel()
    with pytest.raises(ClusterError):
        second.result(60)
    assert len(node.asked) == 1


def test_an_error_on_the_node_is_the_error_of_the_request() -> None:
    class Failing(ArithmeticNode):
        def answer(self, question: NodeQuestion) -> bytes:
            return msgspec.json.encode(NodeAnswer(error="No numpy there.", remedy="Install it."))

    with pytest.raises(ClusterError, match=r"No numpy there\. Install it\."):
        executor_of(Failing("one")).submit(TURNS, Slot(name="one")).result(60)


def test_replicates_that_start_together_run_on_one_node() -> None:
    one, two = ArithmeticNode("one", lost=True), ArithmeticNode("two", replicates=3)
    found = executor_of(one, two).submit_replicates([TURNS] * 3, Slot(name="one")).result(60)
    assert [(it.node, it.lost_nodes) for it in found] == [("two", ("one",))] * 3
    (question,) = two.asked
    assert isinstance(question, ReplicatesQuestion) and len(question.requests) == 3


@pytest.mark.parametrize("text", [b'{"replicates": 3}', b'{"replicates": []}', b"{}", b"none"])
def test_an_answer_that_is_none_is_refused(text: bytes) -> None:
    class Babbling(ArithmeticNode):
        def answer(self, question: NodeQuestion) -> bytes:
            return text

    with pytest.raises(ClusterError, match="cannot be read"):
        executor_of(Babbling("one")).submit(TURNS, Slot(name="one")).result(60)


def test_only_nodes_of_the_most_frequent_kind_are_used() -> None:
    new, old = Machine(processor="new", cores=8), Machine(processor="old", cores=4)
    nodes = [ArithmeticNode("a", machine=old), ArithmeticNode("b", machine=new), ArithmeticNode("c", machine=new)]
    described = machines_of([*nodes, ArithmeticNode("d", lost=True)])
    assert [node.name for node, _ in described] == ["a", "b", "c"], "a lost node is left out"
    chosen, others = largest_group(described)
    assert ([it.name for it in chosen], [it.name for it in others]) == (["b", "c"], ["a"])


def test_a_node_gets_its_own_paths_and_the_driver_its_own() -> None:
    question = LaunchQuestion(request=LaunchRequest(assignment=Assignment(workload=HERE), steps=1))
    there = moved(question, "/project", "/node/project", "/usr/bin/python3")
    assert isinstance(there, LaunchQuestion)
    workload = there.request.assignment.workload
    assert (workload.directory, workload.target) == ("/node/project", "/node/project/train.py")
    assert workload.python == "/usr/bin/python3"
    two_replicates = moved(ReplicatesQuestion(requests=(TURNS, TURNS)), "/project", "/node/project", "/usr/bin/python3")
    assert isinstance(two_replicates, ReplicatesQuestion)
    everywhere = [arm.workload for it in two_replicates.requests for arm in it.arms]
    assert len(everywhere) == 2 * len(TURNS.arms) and set(everywhere) == {workload}
    answer = b'{"a":"/node/project/train.py","b":"/node/project","c":"/node/projectafter"}'
    assert returned(answer, "/project", "/node/project") == (
        b'{"a":"/project/train.py","b":"/project","c":"/node/projectafter"}'
    )


def test_files_of_runs_come_back_and_links_do_not(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "0001").mkdir(parents=True)
    (there / "0002").mkdir()
    (there / "0001" / "output.txt").write_text("before")
    (there / "0002" / "output.txt").write_text("done")
    (there / "0002" / "link").symlink_to("/etc/passwd")
    text = msgspec.json.encode({"path": f"{there}/0002/output.txt"})
    parcel = packed(text, there, ["0002"])
    assert [name for name, _ in parcel.files] == ["0002/output.txt"]
    assert msgspec.json.decode(unpacked(parcel, here)) == {"path": f"{here}/0002/output.txt"}
    assert (here / "0002" / "output.txt").read_text() == "done"


@pytest.mark.parametrize("name", ["../../outside", "/outside"])
def test_a_file_outside_of_the_study_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="outside"):
        unpacked(Parcel(b"{}", "/there", ((name, b"x"),)), tmp_path / "runs")
    assert not list(tmp_path.rglob("outside"))


FIRST_ANSWERS = """\
import sys
import threading

import msgspec

from hotlap.cluster.executor import answer_of
from hotlap.cluster.questions import NodeAnswer

sys.setswitchinterval(1e-6)
text = msgspec.json.encode(NodeAnswer())
together = threading.Barrier(8)


def read() -> None:
    together.wait()
    answer_of(text)


threads = [threading.Thread(target=read) for _ in range(8)]
for it in threads:
    it.start()
for it in threads:
    it.join()
"""


def test_the_first_answers_may_arrive_together() -> None:
    """With a decoder made on demand two of three processes ended by a segmentation fault."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    for _ in range(4):
        subprocess.run([sys.executable, "-c", FIRST_ANSWERS], env=environment, check=True, timeout=60)
