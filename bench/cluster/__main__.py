"""How long replicates take on a Ray cluster of one, two and four local nodes, with trials that sleep.

All nodes are on this machine and share its cores, so that what is measured is the queueing: steps sleep instead of
computing, and only starting a trial needs a core. Each number of nodes takes the same replicates, in waves of as many
as there are nodes, as a search does. Needs ``pip install ".[ray]"``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import msgspec

from bench.pieces import piece
from bench.report import command_line, table, write
from hotlap.cluster import cluster_executor
from hotlap.records import Assignment, Isolation, TrialCluster, TurnRequest, Workload

NODES = (1, 2, 4)
REPLICATES = 4
ARMS = 3
ROUNDS = 30
BLOCK_SECONDS = 0.5
STEP_SECONDS = 0.02
WARM_UP_SECONDS = 5.0
LONGEST_SECONDS = 900.0

SCRIPT = f"""\
import time

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
values = torch.randn(4, 8)
while True:
    optimizer.zero_grad()
    model(values).square().mean().backward()
    optimizer.step()
    time.sleep({STEP_SECONDS})
"""


class Row(msgspec.Struct, kw_only=True):
    """So many nodes: the wall seconds of all replicates, the mean seconds of one, and how many each node took."""

    nodes: int
    wall_seconds: float
    replicate_seconds: float
    by_node: tuple[int, ...]
    load: float


def main(words: list[str]) -> None:
    """Measure each number of nodes, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pieces", type=Path, help="the folder of finished numbers of nodes")
    choices = parser.parse_args(words)
    rows = []
    for nodes in NODES:
        rows.append(piece(choices.pieces, f"nodes-{nodes}", Row, partial(measured, nodes)))
        sys.stderr.write(f"{text_of(rows)}\n")
    write(
        choices.out,
        title="Replicates on several nodes of a Ray cluster",
        command=command_line("bench.cluster"),
        text=text_of(rows),
        data=msgspec.to_builtins(rows),
    )


def measured(nodes: int) -> Row:
    """Start a cluster of so many nodes, and let them take the replicates."""
    import ray
    from ray.cluster_utils import Cluster as RayCluster

    cluster = RayCluster(head_node_args={"num_cpus": 1}, initialize_head=True)
    try:
        for _ in range(nodes - 1):
            cluster.add_node(num_cpus=1)
        with tempfile.TemporaryDirectory() as folder:
            return _taken(TrialCluster(kind="ray", address=cluster.address), nodes, Path(folder))
    finally:
        ray.shutdown()
        cluster.shutdown()


def _taken(cluster: TrialCluster, nodes: int, folder: Path) -> Row:
    script = folder / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    workload = Workload(kind="script", target=str(script), directory=str(folder), python=sys.executable)
    study = folder / "study"
    study.mkdir()
    executor = cluster_executor(cluster, workload)(study, Isolation(unprotected=True))
    slots = executor.slots()
    if len(slots) != nodes:
        raise SystemExit(f"{len(slots)} of {nodes} nodes are free.")
    arm = Assignment(workload=workload)
    request = TurnRequest(
        arms=(arm,) * ARMS, rounds=ROUNDS, block_seconds=BLOCK_SECONDS, warm_up_limit_seconds=WARM_UP_SECONDS
    )
    began, found, seconds = time.monotonic(), [], []
    while len(found) < REPLICATES:
        wave_began = time.monotonic()
        asked = [executor.submit(request, slot) for slot in slots[: REPLICATES - len(found)]]
        for it in asked:
            found.append(it.result(LONGEST_SECONDS))
            seconds.append(time.monotonic() - wave_began)
    wall_seconds = time.monotonic() - began
    for it in found:
        if [len(rounds) for rounds in it.rounds] != [ROUNDS] * ARMS:
            raise SystemExit(f"A replicate is not complete: {[run.ending for run in it.runs]}")
    names = [it.node for it in found]
    return Row(
        nodes=nodes,
        wall_seconds=wall_seconds,
        replicate_seconds=sum(seconds) / len(seconds),
        by_node=tuple(names.count(it.name) for it in slots),
        load=os.getloadavg()[1],
    )


def text_of(rows: list[Row]) -> str:
    """The table, with each number of nodes compared with one."""
    alone = rows[0].wall_seconds
    cells = [
        (
            str(it.nodes), f"{it.wall_seconds:.0f} s", f"{alone / it.wall_seconds:.2f}x",
            f"{it.replicate_seconds:.0f} s", f"{REPLICATES * it.replicate_seconds / it.wall_seconds:.2f}",
            ", ".join(map(str, it.by_node)), f"{it.load:.1f}",
        )
        for it in rows
    ]  # fmt: skip
    header = ("nodes", "wall", "against one", "a replicate", "at a time", "by node", "load of the machine")
    return (
        f"{REPLICATES} replicates of {ARMS} arms with {ROUNDS} rounds of {BLOCK_SECONDS:g} s, whose steps sleep for "
        f"{1000 * STEP_SECONDS:.0f} ms.\nAll nodes share this machine's cores, which only the starts of trials need: a "
        "replicate takes longer\nwhere more of them start at a time, or where other programs compute. *At a time* is "
        "how many replicates\nran on average: as many as there are nodes, if none waits for another.\n"
        f"\n{table(header, cells)}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
