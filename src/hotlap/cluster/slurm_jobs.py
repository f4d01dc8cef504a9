"""Jobs of Slurm through submitit: one job for each request, on a file system that all nodes share.

With ``cluster="local"`` submitit starts jobs as processes of this machine, which is how tests run them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from hotlap.cluster.executor import ClusterExecutor, NodeLostError, answer_of
from hotlap.cluster.on_node import NodeFolders, NodeServer
from hotlap.cluster.questions import MachineQuestion, NodeQuestion
from hotlap.errors import ClusterError, MissingPackageError
from hotlap.records import Isolation, TrialCluster, Workload
from hotlap.runtime.trackers import tracker_environment
from hotlap.study import RUNS

LOCAL = "local"
"""The address that means: jobs are processes of this machine."""


def slurm_executor(cluster: TrialCluster, workload: Workload, directory: Path, isolation: Isolation) -> ClusterExecutor:
    """An executor that has up to ``cluster.nodes`` jobs at a time (default: one).

    Which node a job gets is Slurm's choice: ``settings`` must name a partition, or a constraint, of equal nodes.
    Raises :class:`MissingPackageError` without submitit, :class:`ClusterError` for settings that it refuses.
    """
    jobs = [SlurmJob(f"job-{number + 1}", cluster, directory, isolation) for number in range(max(1, cluster.nodes))]
    try:
        machine = answer_of(jobs[0].answer(MachineQuestion())).machine
    except NodeLostError as error:
        raise ClusterError(
            f"The first job ended without an answer: {error}", remedy=f"Read its log in {directory / 'jobs'}."
        ) from error
    assert machine is not None
    return ClusterExecutor(jobs, machine)


class SlurmJob:
    """A place in the queue: each question is a job of its own."""

    def __init__(self, name: str, cluster: TrialCluster, directory: Path, isolation: Isolation) -> None:
        self.name = name
        self._submitter = _submitter(cluster, directory / "jobs")
        self._folders = NodeFolders(str(directory / RUNS / name), tracker_environment(directory), {})
        self._isolation = msgspec.json.encode(isolation)
        self._job: Any = None

    def answer(self, question: NodeQuestion) -> bytes:
        """Submit a job and wait for its answer. Raises :class:`NodeLostError` when it ends without one."""
        self._job = self._submitter.submit(answer_once, self._folders, self._isolation, msgspec.json.encode(question))
        self._job.wait()
        failure = self._job.exception()
        if failure is not None:
            raise NodeLostError(_last_line(str(failure)))
        answer: bytes = self._job.result()
        return answer

    def stop(self) -> None:
        """Cancel the job."""
        if self._job is not None:
            self._job.cancel()


def answer_once(folders: NodeFolders, isolation: bytes, question: bytes) -> bytes:
    """What a job runs."""
    server = NodeServer(folders, isolation)
    try:
        return server.answer(question).answer
    finally:
        server.close()


def _submitter(cluster: TrialCluster, folder: Path) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise MissingPackageError(
            "Trials as Slurm jobs need submitit, which is not installed.",
            remedy='Install it: pip install "hotlap[slurm]".',
        ) from error
    try:
        made = submitit.AutoExecutor(folder=folder, cluster=cluster.address or None)
        made.update_parameters(name="hotlap", **_parameters(cluster.settings, local=cluster.address == LOCAL))
    except (NameError, ValueError, TypeError, RuntimeError) as error:
        raise ClusterError(f"submitit refuses these settings: {error}", remedy="Correct --slurm.") from error
    return made


def _parameters(settings: Sequence[tuple[str, str]], *, local: bool) -> dict[str, Any]:
    """submitit's names with a prefix, where they are Slurm's own; numbers as such."""
    common = {"timeout_min", "mem_gb", "gpus_per_node", "cpus_per_task", "nodes", "tasks_per_node"}
    named = {name if name in common else f"slurm_{name}": value for name, value in settings}
    if not local:
        named.setdefault("slurm_exclusive", "1")
    return {name: _typed(value) for name, value in named.items()}


def _typed(value: str) -> int | str | bool:
    return int(value) if value.isdecimal() else value


def _last_line(text: str) -> str:
    return text.strip().rsplit("\n", 1)[-1]
