"""An engine that hangs, segfaults or runs out of memory is an outcome with its reason, and the next one is tried."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import msgspec
import pytest
from inference.test_infer import ENGINES, search, verdict

from hotlap.errors import ArtefactError
from hotlap.experiment.options import Options
from hotlap.procedures.artefact import write_artefact
from hotlap.procedures.infer import infer
from hotlap.records import (
    Assignment,
    Crashed,
    Ending,
    Failed,
    Kept,
    LaunchRequest,
    NoGain,
    OutOfMemory,
    Plan,
    Run,
    ScriptFacts,
    Setting,
    Stopped,
    Study,
    TimedOut,
    Workload,
)
from hotlap.trial.local import LocalExecutor
from hotlap.wording import ending_text

FAULTS = {
    "hanging": (TimedOut, "5 s"),
    "segfaulting": (Crashed, "SIGSEGV"),
    "hungry": (OutOfMemory, "memory"),
}
PLAN = Plan(settings=(Setting(lever="torchscript"),))


def workload(folder: Path, model: str) -> Workload:
    shutil.copy(Path(__file__).with_name("faulty.py"), folder / "faulty.py")
    return Workload(
        kind="inference",
        target=f"faulty:{model}",
        arguments=("--inputs", "faulty:rows"),
        directory=str(folder),
        python=sys.executable,
    )


@pytest.mark.parametrize("model", FAULTS)
def test_a_broken_engine_ends_its_launch_and_no_other(tmp_path: Path, model: str) -> None:
    kind, words = FAULTS[model]
    executor = LocalExecutor(tmp_path / "runs")
    plain = Assignment(workload=workload(tmp_path, model), step_source="call", startup_limit_seconds=60.0)
    limit = 5.0 if model == "hanging" else 60.0
    broken = msgspec.structs.replace(plain, plan=PLAN, startup_limit_seconds=limit)
    found = executor.launch(LaunchRequest(assignment=broken, steps=3)).ending
    assert isinstance(found, kind), found
    assert words in ending_text(found)
    assert isinstance(executor.launch(LaunchRequest(assignment=plain, steps=3)).ending, Stopped)


@pytest.mark.slow
@pytest.mark.parametrize("model", FAULTS)
def test_a_search_goes_on_after_a_broken_engine(tmp_path: Path, model: str) -> None:
    options = Options(only=("torchscript", "inference-mode"), startup_limit_seconds=8.0, rounds=4, delta=0.5)
    study = infer(workload(tmp_path, model), options, LocalExecutor(tmp_path / "runs"))
    assert study.status == "finished"
    failed = verdict(study, "torchscript")
    assert isinstance(failed, Failed) and isinstance(failed.ending, FAULTS[model][0]), failed
    assert isinstance(verdict(study, "inference-mode"), (Kept, NoGain))


@pytest.mark.slow
def test_a_model_that_breaks_the_engine_is_not_exported(tmp_path: Path) -> None:
    target = workload(tmp_path, "segfaulting")
    found = Study(workload=target, kind="inference", plan=PLAN, baseline=Run(facts=ScriptFacts(inputs=3)))
    with pytest.raises(ArtefactError, match="torchscript"):
        write_artefact(found, target, Options(), LocalExecutor(tmp_path / "runs"), tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "fault",
    [
        TimedOut(limit_seconds=600.0, during="start"),
        Crashed(exit_code=-11, error="Segmentation fault"),
        OutOfMemory(error="std::bad_alloc"),
    ],
    ids=["hang", "segfault", "memory"],
)
def test_the_next_engine_is_tried_and_the_reason_is_kept(tmp_path: Path, fault: Ending) -> None:
    options = Options(only=("onnx-runtime", "openvino"))
    study = search(
        tmp_path, options, engines=True, factors=ENGINES, errors={}, crashes=frozenset({"openvino"}), fault=fault
    )
    failed = verdict(study, "openvino")
    assert isinstance(failed, Failed) and failed.ending == fault
    assert [it.lever for it in study.plan.settings] == ["onnx-runtime"]
