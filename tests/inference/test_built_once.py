"""What an engine builds of a model is built once for all launches of a study, and is gone with it."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from hotlap.records import Assignment, Isolation, LaunchRequest, Plan, Run, Setting, Stopped, Workload
from hotlap.trial.local import LocalExecutor

MODULE = """
import torch

def model():
    torch.manual_seed(0)
    made = torch.nn.LSTM(16, 16, batch_first=True)
    with torch.no_grad():
        made.weight_ih_l0.mul_({scale})
    return made.eval()

def rows():
    torch.manual_seed(1)
    return [torch.randn(4, 8, 16) for _ in range(3)]
"""
PLAN = Plan(settings=(Setting(lever="torchscript"),))


def launched(executor: LocalExecutor, folder: Path, *, scale: float = 1.0) -> Run:
    (folder / "recurrent.py").write_text(MODULE.format(scale=scale))
    workload = Workload(
        kind="inference",
        target="recurrent:model",
        arguments=("--inputs", "recurrent:rows"),
        directory=str(folder),
        python=sys.executable,
    )
    found = executor.launch(
        LaunchRequest(assignment=Assignment(workload=workload, step_source="call", plan=PLAN), steps=3)
    )
    assert isinstance(found.ending, Stopped), found.ending
    return found


@pytest.mark.parametrize("mode", [None, "fence"])
def test_a_second_launch_loads_what_the_first_one_built(
    tmp_path: Path, mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.mkdtemp(prefix="t"))
    isolation = Isolation() if mode is None else Isolation(mode="fence")
    executor = LocalExecutor(tmp_path / "runs", isolation=isolation)
    first, second = launched(executor, tmp_path), launched(executor, tmp_path)
    assert first.engine is not None and second.engine is not None
    assert first.engine.build_seconds == second.engine.build_seconds > 0, "the time is that of the one build"
    assert first.engine.load_seconds > first.engine.build_seconds
    (kept,) = Path(tempfile.gettempdir()).glob("hotlap-engines-*")
    assert [it.name for it in kept.glob("*/model.ts")] == ["model.ts"]
    if mode is None:
        other = launched(executor, tmp_path, scale=2.0)
        assert other.engine is not None and other.engine.build_seconds != first.engine.build_seconds
        assert len(list(kept.glob("*/model.ts"))) == 2, "other weights are another model"
    del executor
    assert not kept.exists()
    shutil.rmtree(tempfile.gettempdir())
