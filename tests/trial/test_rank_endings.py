"""A run of several ranks that fails: the sentence names the rank and the cause, and no process is left."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import psutil
import pytest

from hotlap.records import Assignment, Crashed, LaunchRequest, Stopped, TimedOut, TurnRequest, Workload
from hotlap.trial.local import LocalExecutor
from hotlap.trial.rank_endings import cause_on_ranks

SCRIPT = Path(__file__).with_name("troubled_ranks.py")

PEER = """[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "train.py", line 20, in <module>
[rank{rank}]:     loss.backward()
[rank{rank}]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:35206.
"""
OWN = """[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 12, in <module>
[rank1]:     batch = next(batches)
[rank1]: RuntimeError: the data is broken
"""
SUMMARY = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 6)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  host      : localhost
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: 7)
"""


@pytest.mark.parametrize("output", [OWN + PEER.format(rank=0), PEER.format(rank=0) + OWN + PEER.format(rank=2)])
def test_the_error_of_the_rank_that_failed_counts_before_those_of_its_peers(output: str) -> None:
    assert cause_on_ranks(output) == "On rank 1: RuntimeError: the data is broken"


def test_a_rank_that_was_killed_is_named() -> None:
    found = cause_on_ranks(PEER.format(rank=0) + SUMMARY.format(rank=1, code=-9))
    assert found == "Rank 1 was ended by SIGKILL while the others waited for it."


def test_a_rank_that_left_while_another_waited() -> None:
    found = cause_on_ranks(PEER.format(rank=0) + SUMMARY.format(rank=0, code=1))
    assert "still exchanged data" in found and "rank 0" in found


@pytest.mark.parametrize(
    "output",
    [
        "",
        "Traceback (most recent call last):\n  File 'train.py'\nValueError: in one process\n",
        SUMMARY.format(rank=1, code=1),
        PEER.format(rank=0),
    ],
)
def test_other_outputs_are_left_to_the_usual_sentence(output: str) -> None:
    assert cause_on_ranks(output) == ""


def launch(tmp_path: Path, trouble: str, *options: str, startup_seconds: float = 300.0) -> object:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    workload = Workload(
        kind="module",
        target="torch.distributed.run",
        arguments=(*(options or ("--standalone",)), "--nproc-per-node=2", str(SCRIPT), trouble),
        directory=str(work),
        python=sys.executable,
    )
    assignment = Assignment(
        workload=workload, step_source="auto", startup_limit_seconds=startup_seconds, block_limit_seconds=10.0
    )
    executor = LocalExecutor(tmp_path / "study", environment={"OMP_NUM_THREADS": "1"})
    ending = executor.launch(LaunchRequest(assignment=assignment, steps=100)).ending
    running = [it.info["cmdline"] or [] for it in psutil.process_iter(["cmdline"])]
    assert not [it for it in running if str(SCRIPT) in it and trouble in it]
    return ending


def test_a_rank_that_dies(tmp_path: Path) -> None:
    ending = launch(tmp_path, "dies")
    assert isinstance(ending, Crashed)
    assert ending.error == "On rank 1: RuntimeError: the data of rank 1 is broken"


@pytest.mark.slow
def test_a_rank_that_hangs(tmp_path: Path) -> None:
    ending = launch(tmp_path, "hangs")
    assert isinstance(ending, TimedOut) and ending.limit_seconds == 10.0


@pytest.mark.slow
def test_a_rank_that_never_starts(tmp_path: Path) -> None:
    ending = launch(tmp_path, "never-starts", startup_seconds=60.0)
    assert isinstance(ending, TimedOut) and ending.during == "startup"


@pytest.mark.slow
def test_a_rank_that_trains_fewer_steps(tmp_path: Path) -> None:
    ending = launch(tmp_path, "ends-early")
    assert isinstance(ending, Crashed) and "number of steps" in ending.error


@pytest.mark.slow
def test_a_port_that_another_program_uses(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ending = launch(tmp_path, "port", f"--master-port={taken.getsockname()[1]}", "--master-addr=127.0.0.1")
    assert isinstance(ending, Crashed) and "EADDRINUSE" in ending.error and "\n" not in ending.error


@pytest.mark.slow
def test_a_group_that_is_made_by_a_file(tmp_path: Path) -> None:
    """Again in the same folder: nothing is left that a second group could take for its own."""
    for _ in range(2):
        assert isinstance(launch(tmp_path, "by-file"), Stopped)


@pytest.mark.slow
def test_arms_with_the_same_fixed_port_are_launched_one_after_the_other(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workload = Workload(
        kind="module",
        target="torch.distributed.run",
        arguments=(f"--master-port={port}", "--nproc-per-node=2", str(SCRIPT), "fixed-port"),
        directory=str(tmp_path),
        python=sys.executable,
    )
    arms = (Assignment(workload=workload, block_limit_seconds=60.0),) * 2
    executor = LocalExecutor(tmp_path / "study", environment={"OMP_NUM_THREADS": "1"})
    turns = executor.take_turns(TurnRequest(arms=arms, rounds=2, block_seconds=0.05, block_steps=2))
    assert not turns.interleaved
    assert [type(it.ending) for it in turns.runs] == [Stopped, Stopped]
    assert [len(it) for it in turns.rounds] == [2, 2]
