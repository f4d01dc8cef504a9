"""Nodes of a Ray cluster: on each an actor that has the whole node, so that no other work of the cluster disturbs it.

Ray ends actors with the program that started them, and hotlap's watchdog ends their trials: a driver that is killed
leaves nothing behind. Method: Ray's documentation of actors, scheduling strategies and runtime environments.
"""

from __future__ import annotations

import copy
import os
import socket
import sys
import uuid
from pathlib import Path
from typing import Any

import msgspec

import hotlap
from hotlap.cluster.alike import largest_group
from hotlap.cluster.executor import ClusterExecutor, NodeLostError, machines_of
from hotlap.cluster.journey import moved, returned, unpacked
from hotlap.cluster.on_node import NodeFolders, NodeServer
from hotlap.cluster.questions import NodeQuestion
from hotlap.errors import ClusterError, MissingPackageError
from hotlap.records import Isolation, Machine, TrialCluster, Workload
from hotlap.runtime.trackers import tracker_environment
from hotlap.study import RUNS

_START_SECONDS = 120.0
"""How long a node may take to start an actor; one that is busy with other work of the cluster does not in this time."""
_STAYS_HERE = (".git", ".hotlap", "__pycache__", ".venv", "*.pyc")
_HOTLAP: dict[str, Any] = {"py_modules": [str(Path(hotlap.__file__).parent)]}
"""hotlap's own code, as Ray's runtime environment takes it to nodes."""
_SET_BY_RAY = ("OMP_NUM_THREADS",)
"""Ray sets it to the actor's processors; trials must see what the driver's environment has."""


def ray_executor(cluster: TrialCluster, workload: Workload, directory: Path, isolation: Isolation) -> ClusterExecutor:
    """An executor over all free nodes of one kind, up to ``cluster.nodes``.

    Raises :class:`MissingPackageError` without Ray, :class:`ClusterError` if the cluster cannot be reached or no node
    of it is free.
    """
    started = [it for it in _actors(cluster, workload, directory, isolation) if it.begun()]
    described = machines_of(started)
    if not described:
        raise ClusterError(
            f"No node of the Ray cluster became free within {_START_SECONDS:g} s.",
            remedy="Wait until its other work has ended (`ray status` shows it), or give --address of another cluster.",
        )
    chosen, others = largest_group(described)
    used = chosen[: cluster.nodes or None]
    for node in (*others, *chosen[len(used) :]):
        node.stop_for_good()
    machine = next(it for node, it in described if node is used[0])
    return ClusterExecutor(used, _with_warnings(machine, [it.name for it in others]))


def cluster_machines(cluster: TrialCluster, workload: Workload, directory: Path) -> list[tuple[str, Machine]]:
    """What each free node is, with its measured rates, and its name. Raises as :func:`ray_executor` does."""
    started = [it for it in _actors(cluster, workload, directory, Isolation(unprotected=True)) if it.begun()]
    try:
        return [(node.name, machine) for node, machine in machines_of(started)]
    finally:
        for node in started:
            node.stop_for_good()


class RayNode:
    """A node with an actor on it, which is started again after :meth:`stop`."""

    def __init__(self, ray: Any, facts: dict[str, Any], workload: Workload, folder: Path, isolation: Isolation) -> None:
        self._ray = ray
        self._facts = facts
        self._workload = workload
        self._runs = folder / RUNS
        self._trackers = tracker_environment(folder)
        self._isolation = msgspec.json.encode(isolation)
        self._shared = False
        self._actor: Any = None

    @property
    def name(self) -> str:
        """The node's host name, with the beginning of its identifier where several share one."""
        return f"{self._facts['NodeManagerHostname']}-{self._facts['NodeID'][:6]}"

    @property
    def identifier(self) -> str:
        """Ray's identifier of the node."""
        return str(self._facts["NodeID"])

    def prepare(self, shared: bool) -> None:
        """Request the actor; ``shared``: the node sees the driver's files."""
        self._shared = shared
        self._start()

    def begun(self) -> bool:
        """Whether the actor started in time; else it is given up."""
        ready, _ = self._ray.wait([self._actor.where.remote()], timeout=_START_SECONDS)
        try:
            self._ray.get(ready)
        except self._ray.exceptions.RayError:
            ready = []
        if not ready:
            self.stop_for_good()
        return bool(ready)

    def answer(self, question: NodeQuestion) -> bytes:
        """Ask the actor. Raises :class:`NodeLostError` when it or its node is gone."""
        ray = self._ray
        if self._actor is None:
            self._start()
        here = self._workload.directory
        try:
            there, python = ray.get(self._actor.where.remote())
            asked = msgspec.json.encode(question if self._shared else moved(question, here, there, python))
            parcel = ray.get(self._actor.answer.remote(asked))
        except ray.exceptions.RayTaskError as error:
            raise ClusterError(
                f"hotlap failed on the node {self.name}: {error.cause}.",
                remedy="Report it, with the output of --debug.",
            ) from error
        except ray.exceptions.RayError as error:
            raise NodeLostError from error
        text = unpacked(parcel, self._runs / self.name)
        return text if self._shared else returned(text, here, there)

    def stop(self) -> None:
        """End the actor with everything that it runs."""
        self.stop_for_good()
        self._actor = None

    def stop_for_good(self) -> None:
        """The same, for a node that is not used again."""
        if self._actor is not None:
            self._ray.kill(self._actor)

    def _start(self) -> None:
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            node_id=self._facts["NodeID"], soft=False
        )
        resources = self._facts["Resources"]
        runs = str(self._runs / self.name) if self._shared else ""
        folders = NodeFolders(runs, self._trackers, {it: os.environ.get(it) for it in _SET_BY_RAY})
        actor = self._ray.remote(_Actor).options(
            num_cpus=resources.get("CPU", 0),
            num_gpus=resources.get("GPU", 0),
            max_restarts=0,
            scheduling_strategy=affinity,
        )
        self._actor = actor.remote(folders, self._isolation)


class _Actor(NodeServer):
    """The actor's class."""

    def where(self) -> tuple[str, str]:
        """The node's folder of the project, and its interpreter."""
        return str(Path.cwd()), sys.executable


def _actors(cluster: TrialCluster, workload: Workload, directory: Path, isolation: Isolation) -> list[RayNode]:
    ray = _connected(cluster, _HOTLAP)
    shared = _sees_files(ray, _alive(ray), directory, workload)
    if not all(shared.values()):
        # Folders travel with a job, which this program then begins again.
        ray.shutdown()
        ray = _connected(cluster, _HOTLAP | {"working_dir": workload.directory, "excludes": list(_STAYS_HERE)})
    nodes = [RayNode(ray, it, workload, directory, isolation) for it in _alive(ray)]
    for node in nodes:
        node.prepare(shared.get(node.identifier, False))
    return nodes


def _alive(ray: Any) -> list[dict[str, Any]]:
    return [it for it in ray.nodes() if it["Alive"] and it["Resources"].get("CPU")]


def _connected(cluster: TrialCluster, environment: dict[str, Any]) -> Any:
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise MissingPackageError(
            "Trials on a Ray cluster need Ray, which is not installed.", remedy='Install it: pip install "hotlap[ray]".'
        ) from error
    if not ray.is_initialized():
        try:
            ray.init(
                address=cluster.address or "auto",
                log_to_driver=False,
                logging_level="ERROR",
                runtime_env=copy.deepcopy(environment),  # Ray puts into it what this cluster alone has
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ClusterError(
                f"The Ray cluster {cluster.address or 'of this machine'} cannot be reached: {error}",
                remedy="Start one with `ray start --head`, or give its address with --address.",
            ) from error
    return ray


def _sees_files(ray: Any, facts: list[dict[str, Any]], directory: Path, workload: Workload) -> dict[str, bool]:
    """Which nodes, by their identifiers, have the study and the interpreter at the same paths, as a shared file system
    gives them."""
    token = directory / f".seen-by-nodes-{uuid.uuid4().hex}"
    token.write_text(socket.gethostname())
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    look = ray.remote(_exists)
    asked = []
    for it in facts:
        there = strategy(node_id=it["NodeID"], soft=False)
        on_node = look.options(num_cpus=0, scheduling_strategy=there)
        asked.append(on_node.remote(str(token), workload.python))
    try:
        ready, _ = ray.wait(asked, num_returns=len(asked), timeout=_START_SECONDS)
        found = [it in ready and bool(_result(ray, it)) for it in asked]
        return {it["NodeID"]: sees for it, sees in zip(facts, found, strict=True)}
    finally:
        token.unlink()


def _result(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError:
        return False


def _exists(*paths: str) -> bool:
    return all(map(os.path.exists, paths))


def _with_warnings(machine: Machine, others: list[str]) -> Machine:
    if not others:
        return machine
    text = f"{len(others)} nodes differ from those used and stay idle: {', '.join(others)}."
    return msgspec.structs.replace(machine, warnings=(*machine.warnings, text))
