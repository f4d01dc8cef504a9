"""Real trials on a Ray cluster of several local nodes, and as jobs that submitit starts here; both are extras."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hotlap.cluster import cluster_executor
from hotlap.records import Assignment, Isolation, TrialCluster, TurnRequest, Workload
from hotlap.study import load_study

# Ray leaves processes of its own to the interpreter's end.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

SCRIPT = """\
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)  # two nodes of one machine share its cores
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
values, labels = torch.randn(256, 128), torch.randint(0, 10, (256,))
for _ in range(10**6):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(values), labels).backward()
    optimizer.step()
"""


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    (tmp_path / "project").mkdir()
    script = tmp_path / "project" / "train.py"
    script.write_text(SCRIPT)
    return Workload(kind="script", target=str(script), directory=str(script.parent), python=sys.executable)


@pytest.fixture
def two_nodes() -> Iterator[Any]:
    pytest.importorskip("ray", reason='needs pip install ".[ray]"')
    from ray.cluster_utils import Cluster as RayCluster

    cluster = RayCluster(head_node_args={"num_cpus": 1}, initialize_head=True)
    cluster.add_node(num_cpus=1)
    yield cluster
    import ray

    ray.shutdown()
    cluster.shutdown()


def turns_of(workload: Workload) -> TurnRequest:
    assignment = Assignment(workload=workload)
    return TurnRequest(arms=(assignment, assignment), rounds=2, block_seconds=0.05)


def processes_of(workload: Workload) -> list[int]:
    """The processes that run the script, by their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if workload.target.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def wait_until_none(workload: Workload) -> None:
    end = time.monotonic() + 60
    while processes_of(workload):
        assert time.monotonic() < end, f"left: {processes_of(workload)}"
        time.sleep(0.2)


def test_replicates_run_on_both_nodes_and_a_lost_one_is_repeated(
    two_nodes: Any, workload: Workload, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    study.mkdir()
    cluster = TrialCluster(kind="ray", address=two_nodes.address)
    executor = cluster_executor(cluster, workload)(study, Isolation(unprotected=True))
    assert len(executor.slots()) == 2
    asked = [executor.submit(turns_of(workload), slot) for slot in executor.slots()]
    found = [it.result(300) for it in asked]
    assert {it.node for it in found} == {it.name for it in executor.slots()}
    assert all(len(it.rounds[0]) == 2 for it in found)
    assert all(Path(run.output_path).is_relative_to(study) for it in found for run in it.runs)

    asked = [executor.submit(turns_of(workload), slot) for slot in executor.slots()]
    two_nodes.remove_node(next(iter(two_nodes.worker_nodes)))
    found = [it.result(300) for it in asked]
    assert len({it.node for it in found}) == 1
    assert sum(len(it.lost_nodes) for it in found) == 1
    wait_until_none(workload)


@pytest.mark.timeout(3600)  # a whole search, on nodes that share this machine's cores
def test_a_study_on_a_cluster_goes_on_after_its_driver_was_killed(
    two_nodes: Any, workload: Workload, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    words = [sys.executable, "-m", "hotlap", "tune", "--quiet", "--unprotected"]
    new = ["--study", str(study), "--executor", "ray", "--address", two_nodes.address, "--only", "mixed-precision"]
    new += ["--rounds", "5", "--steps", "20", workload.target]
    driver = subprocess.Popen([*words, *new], cwd=workload.directory)
    journal = wait_for_replicates(study, 2)
    driver.send_signal(signal.SIGKILL)
    driver.wait(60)
    wait_until_none(workload)
    answered = len(journal.read_bytes().splitlines())

    resumed = [sys.executable, "-m", "hotlap", "tune", "--quiet", "--resume", str(study)]
    ended = subprocess.run(resumed, cwd=workload.directory, timeout=2400, check=False, capture_output=True, text=True)
    assert ended.returncode in (0, 4), ended.stderr
    found = load_study(study)
    assert found.status == "finished", found.status_text
    lines = journal.read_bytes().splitlines()
    assert len(lines) > answered
    nodes = {json.loads(it).get("answer", {}).get("node", "") for it in lines if b'"node"' in it} - {""}
    assert len(nodes) == 2
    wait_until_none(workload)


def wait_for_replicates(study: Path, count: int) -> Path:
    end = time.monotonic() + 900
    while time.monotonic() < end:
        for journal in study.rglob("journal.jsonl"):
            answers = journal.read_bytes().splitlines()[1:]  # the first line holds the options
            if sum(b'"rounds"' in it for it in answers) >= count:
                return journal
        time.sleep(0.2)
    pytest.fail("no replicate was journaled")


def test_each_replicate_is_a_job_of_slurm(workload: Workload, tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason='needs pip install ".[slurm]"')
    study = tmp_path / "study"
    study.mkdir()
    cluster = TrialCluster(kind="slurm", address="local", nodes=2, settings=(("timeout_min", "10"),))
    executor = cluster_executor(cluster, workload)(study, Isolation(unprotected=True))
    assert executor.machine().cores >= 1
    asked = [executor.submit(turns_of(workload), slot) for slot in executor.slots()]
    assert [len(it.result(300).rounds[0]) for it in asked] == [2, 2]
    held = executor.submit(turns_of(workload), executor.slots()[0])
    end = time.monotonic() + 120
    while not processes_of(workload) and time.monotonic() < end:
        time.sleep(0.1)
    assert held.cancel()
    wait_until_none(workload)
    assert list((study / "jobs").iterdir())
