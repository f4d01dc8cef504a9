"""Two launches of torchrun on this machine, as on two nodes of a cluster: the plan on every rank, or an error."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hotlap.levers.support.situations import make_setting
from hotlap.plan import save
from hotlap.records import Plan

pytestmark = pytest.mark.slow

VIEW = Plan(settings=(make_setting("gradient-bucket-view"),))
BUCKETS = Plan(settings=(make_setting("gradient-buckets", bucket_cap_mb=5),))
LIMIT_SECONDS = 240

SCRIPT = """\
import torch
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
rank = torch.distributed.get_rank()
print(f"rank {rank} of {torch.distributed.get_world_size()}: {model.gradient_as_bucket_view}\\n", end="", flush=True)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def launches(folder: Path, plans: tuple[Plan | None, Plan | None]) -> list[subprocess.CompletedProcess[str]]:
    """Start two ranks on each node, each node with its own plan file, or without hotlap."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for node, plan in enumerate(plans):
        command = ["torch.distributed.run", "--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2"]
        command += ["--master-addr=127.0.0.1", f"--master-port={port}", str(script)]
        if plan is not None:
            file = folder / f"node-{node}.toml"
            save(plan, file)
            command = ["hotlap", "run", "--plan", str(file), sys.executable, "-m", *command]
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=folder,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        said = [it.communicate(timeout=LIMIT_SECONDS) for it in started]
    finally:
        for it in started:
            it.kill()
    return [
        subprocess.CompletedProcess(it.args, it.returncode, out, err)
        for it, (out, err) in zip(started, said, strict=True)
    ]


def test_the_plan_runs_on_every_rank_of_both_nodes(tmp_path: Path) -> None:
    first, second = launches(tmp_path, (VIEW, VIEW))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    said = sorted((first.stdout + second.stdout).splitlines())
    assert said == [f"rank {rank} of 4: True" for rank in range(4)]


@pytest.mark.parametrize(
    ("plans", "words"),
    [((VIEW, BUCKETS), "has another plan than rank 0"), ((VIEW, None), "runs without a plan of hotlap's")],
    ids=["another", "none"],
)
def test_a_node_that_differs_is_named_by_its_rank(
    tmp_path: Path, plans: tuple[Plan | None, Plan | None], words: str
) -> None:
    first, second = launches(tmp_path, plans)
    assert first.returncode and second.returncode
    assert "of 4: True" not in first.stdout
    assert f"Rank 2 {words}" in first.stderr or f"Rank 2 on {socket.gethostname()} {words}" in first.stderr, (
        first.stderr
    )
