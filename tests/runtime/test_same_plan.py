"""Ranks of one run that read their plans from different files, as on several nodes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from hotlap.errors import ScriptError
from hotlap.levers.support.situations import make_setting
from hotlap.plan import save
from hotlap.records import Plan
from hotlap.runtime.same_plan import compare

BFLOAT16 = Plan(settings=(make_setting("mixed-precision", dtype="bfloat16"),))
FLOAT16 = Plan(settings=(make_setting("mixed-precision", dtype="float16"),))

SCRIPT = """\
import torch
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
print("trained")
"""


def said(plans: list[Plan | None], patience_seconds: float = 20.0) -> list[str]:
    """What each rank says of the plans; None is a rank without hotlap."""
    store = torch.distributed.HashStore()
    patience = timedelta(seconds=patience_seconds)

    def meet(rank: int, plan: Plan) -> str:
        try:
            compare(store, rank, len(plans), plan, patience)
        except ScriptError as error:
            return error.what
        return ""

    with ThreadPoolExecutor(len(plans)) as threads:
        asked = [threads.submit(meet, rank, plan) for rank, plan in enumerate(plans) if plan is not None]
        return [it.result() for it in asked]


def test_ranks_with_the_same_plan_train() -> None:
    assert said([BFLOAT16] * 4) == [""] * 4


def test_the_rank_that_differs_is_named_by_itself_and_by_the_first() -> None:
    first, second, third = said([BFLOAT16, BFLOAT16, FLOAT16])
    assert first == third == f"Rank 2 on {socket.gethostname()} has another plan than rank 0."
    assert not second


def test_a_rank_without_a_plan_is_named() -> None:
    first, third = said([BFLOAT16, None, BFLOAT16], 0.5)
    assert first == "Rank 1 runs without a plan of hotlap's: it showed none in 0.5 s." and not third


def test_one_rank_has_nothing_to_compare() -> None:
    assert said([BFLOAT16]) == [""]


@pytest.fixture
def two_nodes(tmp_path: Path) -> Callable[[Plan, Plan], list[subprocess.CompletedProcess[str]]]:
    """Starts a rank on each of two nodes, as their users do, with a plan file each."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    def start(*plans: Plan) -> list[subprocess.CompletedProcess[str]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        started = []
        for rank, plan in enumerate(plans):
            file = tmp_path / f"node-{rank}.toml"
            save(plan, file)
            group = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            command = [sys.executable, "-m", "hotlap", "run", "--plan", str(file), str(script)]
            pipe = subprocess.PIPE
            started.append(
                subprocess.Popen(command, env=os.environ | group, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)
            )
        ended = []
        for process in started:
            out, err = process.communicate(timeout=120)
            ended.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
        return ended

    return start


def test_nodes_with_the_same_plan_train(
    two_nodes: Callable[[Plan, Plan], list[subprocess.CompletedProcess[str]]],
) -> None:
    assert [(it.returncode, it.stdout) for it in two_nodes(BFLOAT16, BFLOAT16)] == [(0, "trained\n")] * 2


def test_nodes_with_different_plans_do_not(
    two_nodes: Callable[[Plan, Plan], list[subprocess.CompletedProcess[str]]],
) -> None:
    for it in two_nodes(BFLOAT16, FLOAT16):
        assert it.returncode != 0 and "trained" not in it.stdout
        assert "Rank 1 on" in it.stderr and "has another plan than rank 0." in it.stderr
