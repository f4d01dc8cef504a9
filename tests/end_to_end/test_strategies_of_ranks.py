"""The choice between strategies in a real search: two gloo ranks, measured collectives, a real trace and trials."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import pytest

from hotlap.experiment.options import Options
from hotlap.procedures.search import tune
from hotlap.records import CollectiveName, Skipped, Workload
from hotlap.render.strategies import HEADINGS, rows
from hotlap.trial.local import LocalExecutor

SCRIPT = """
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
torch.manual_seed(distributed.get_rank())
layers = [it for _ in range(6) for it in (nn.Linear(640, 640), nn.ReLU())]
model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(640, 10)))
optimizer = torch.optim.AdamW(model.parameters())
inputs, targets = torch.randn(256, 640), torch.randint(0, 10, (256,))
for step in range(100_000):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_strategies_are_predicted_and_those_that_may_win_are_measured(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    workload = Workload(
        kind="module",
        target="torch.distributed.run",
        arguments=("--standalone", "--nproc-per-node=2", "train.py"),
        directory=str(tmp_path),
        python=sys.executable,
    )
    executor = LocalExecutor(tmp_path / "runs", environment={"OMP_NUM_THREADS": "1"})
    options = Options(budget_seconds=900.0, only=("sharded-optimizer", "fully-sharded"))
    study = tune(workload, options, executor)
    choice = study.strategies
    assert choice is not None, study.warnings
    assert choice.strategy == "ddp" and choice.ranks == 2 and choice.validated
    assert {(it.name, it.processes) for it in choice.measured} == {(name, 2) for name in get_args(CollectiveName)}
    assert 0 <= choice.exposed_seconds < choice.step_seconds
    assert {it.strategy for it in choice.forecasts} == {"zero-1", "fsdp2"}
    for it in choice.forecasts:
        assert it.ratio > 0 and it.error is not None and it.peak_bytes > 0
        assert (it.order > 0) is not bool(it.reason)
        if it.order:
            assert it.first_ratio is not None and it.first_peak_bytes > 0, "what may win was tried"
    tried = {it.setting.lever for it in choice.forecasts if it.order}
    skipped = {it.lever for it in study.outcomes if isinstance(it.verdict, Skipped)}
    assert tried and not tried & skipped
    shown = [dict(zip(HEADINGS, it, strict=True)) for it in rows(study, choice)]
    assert all(it[">measured"] for it in shown)
