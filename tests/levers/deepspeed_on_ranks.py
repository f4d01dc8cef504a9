"""One rank of scripts that train with DeepSpeed: losses, the stage of ZeRO and the facts, for each job.

Arguments: the rank, the number of ranks, a file for their rendezvous, a folder. Jobs on standard input.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy
import torch
import torch.distributed as dist
from torch import nn

from hotlap.levers.api import find
from hotlap.records import Assignment, CaptureGradients, DeepSpeedFacts, Setting, Workload
from hotlap.runtime.deepspeed_facts import DeepSpeedWatch
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception
from hotlap.runtime.invariants import InvariantsRecorder

WORKLOAD = Workload(kind="script", target=__file__, directory=str(Path(__file__).parent), python="python")
ASSIGNMENT = Assignment(workload=WORKLOAD, instruments=(CaptureGradients(),))


class Job(msgspec.Struct):
    """Four steps from a configuration of this stage, given as a dictionary, a file, or in ``args``."""

    stage: int
    setting: Setting | None = None
    given_as: str = "dictionary"
    saves: bool = False
    reads_weights: bool = False


class Result(msgspec.Struct):
    losses: list[float]
    stage: int
    facts: tuple[DeepSpeedFacts, ...]
    notes: list[str]
    loaded: list[float]
    error: str
    gradients: dict[str, list[float]]


def train(job: Job, folder: Path) -> Result:
    import deepspeed

    interception = Interception(Hooks(torch=torch))
    interception.install()
    watch = DeepSpeedWatch(interception.hooks)
    recorder = InvariantsRecorder(interception, ASSIGNMENT)
    recorder.directory = Path(tempfile.mkdtemp(dir=folder))
    if job.setting is not None:
        find(job.setting.lever).install(interception.hooks, job.setting)
    torch.manual_seed(0)
    net = nn.Sequential(*(it for _ in range(3) for it in (nn.Linear(9, 9), nn.Tanh())), nn.Linear(9, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, **_configuration(job, folder))
    torch.manual_seed(1 + dist.get_rank())
    losses = [_step(engine) for _ in range(4)]
    loaded: list[float] = []
    if job.saves:
        engine.save_checkpoint(str(folder / "checkpoint"))
        torch.manual_seed(3 + dist.get_rank())
        expected = _step(engine)
        engine.load_checkpoint(str(folder / "checkpoint"))
        torch.manual_seed(3 + dist.get_rank())
        loaded = [expected, _step(engine)]
    error = _error_of(engine) if job.reads_weights else ""
    stage = int(engine.zero_optimization_stage())
    interception.suspend()
    with numpy.load(recorder.gradients_path) as saved:
        gradients = {name: saved[name].tolist() for name in saved.files if name != "loss"}
    return Result(losses, stage, watch.facts(), interception.hooks.notes, loaded, error, gradients)


def _configuration(job: Job, folder: Path) -> dict[str, Any]:
    zero = {"stage": job.stage, "stage3_param_persistence_threshold": 0}  # small weights would stay whole
    given = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": zero}
    if job.given_as == "dictionary":
        return {"config": given}
    file = folder / f"deepspeed-{dist.get_rank()}.json"
    file.write_text(json.dumps(given))
    if job.given_as == "file":
        return {"config": str(file)}
    return {"args": SimpleNamespace(deepspeed_config=str(file), local_rank=dist.get_rank())}


def _step(engine: Any) -> float:
    loss = engine(torch.randn(4, 9)).square().mean()
    engine.backward(loss)
    engine.step()
    found: float = loss.item()
    return found


def _error_of(engine: Any) -> str:
    try:
        engine.module.state_dict()
    except RuntimeError as error:
        return str(error)
    return ""


def main() -> None:
    rank, size, rendezvous, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    os.environ.update(DS_ACCELERATOR="cpu", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
    out = os.dup(1)
    os.dup2(2, 1)  # DeepSpeed prints
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size)
    jobs = msgspec.json.decode(sys.stdin.buffer.read(), type=dict[str, Job])
    results = {name: train(it, folder) for name, it in jobs.items()}
    dist.barrier()
    dist.destroy_process_group()
    with os.fdopen(out, "wb") as file:
        file.write(msgspec.json.encode(results))


if __name__ == "__main__":
    main()
