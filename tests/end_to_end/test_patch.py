"""Patched equals injected: real scripts, with plans made by hand, run once with the levers installed from outside and
once as a patched copy with no plan. The losses of both must agree to the last bit.

Their speed is not tested here: `hotlap patch` measures it, in turns.

Of the workloads that train two are not here: no_optimizer.py, where the levers begin with the second step from outside
(the first backward shows which module is trained), and unseeded_dataset.py, which differs from run to run.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import (
    AlignRandomness,
    Assignment,
    LaunchRequest,
    Observe,
    Patch,
    Plan,
    Run,
    Setting,
    Stopped,
    WithoutDropout,
    Workload,
)
from hotlap.source.patch.make import encoded, make_patch
from hotlap.trial.local import LocalExecutor
from hotlap.trial.patched_copy import patched_copy
from hotlap.trial.source import script_of

ROOT = Path(__file__).parents[2]
STEPS = 12

LOADER = make_setting("loader", num_workers=1, persistent_workers=True, prefetch_factor=2)
BFLOAT16 = make_setting("mixed-precision", dtype="bfloat16")
FLOAT16 = make_setting("mixed-precision", dtype="float16")
FUSED = make_setting("fused-optimizer", implementation="fused")
CHANNELS = make_setting("channels-last")
THREADS = make_setting("cpu-threads", threads=1)
MATMUL = make_setting("matmul-precision", precision="medium")
COMPILE = make_setting("compile", mode="default")
PAGES = make_setting("huge-pages")


@dataclass(frozen=True)
class Case:
    """A script, its plan, and those of the plan's levers that must not be in the patch.

    ``folder`` is where a script runs that reads files of the same folder; a target without ``.py`` is a module of it.
    """

    target: str
    plan: tuple[Setting, ...]
    arguments: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    folder: str = ""

    def workload(self, scratch: Path) -> Workload:
        is_script = self.target.endswith(".py")
        return Workload(
            kind="script" if is_script else "module",
            target=str(ROOT / self.target) if is_script else self.target,
            arguments=self.arguments,
            directory=str(ROOT / self.folder if self.folder else scratch),
            python=sys.executable,
        )


BERT = ("--layers", "1", "--hidden", "64", "--sequence-length", "16", "--vocabulary", "512")
GPT = ("--layers", "1", "--hidden", "32", "--heads", "2", "--block-size", "16", "--batch-size", "4")
LSTM = ("--embedding", "16", "--hidden", "16", "--vocabulary", "200", "--sequence-length", "8")
RESNET = ("--per-class", "20", "--file-size", "64", "--image-size", "32", "--width", "8", "--batch-size", "4")
CASES = (
    Case("examples/bert.py", (BFLOAT16, FUSED, LOADER, PAGES), BERT, left_out=("huge-pages",)),
    Case("examples/gpt.py", (BFLOAT16, FUSED, LOADER, MATMUL), GPT, left_out=("loader",)),
    Case("examples/lstm.py", (FUSED, LOADER, THREADS), LSTM),
    Case("examples/resnet.py", (BFLOAT16, CHANNELS, FUSED, LOADER), RESNET),
    Case("examples/resnet.py", (FLOAT16, THREADS), RESNET),
    Case("tests/workloads/function_train.py", (BFLOAT16, LOADER)),
    Case("tests/workloads/module_level.py", (FUSED, THREADS)),
    Case("tests/workloads/meters.py", (BFLOAT16, LOADER)),
    Case("tests/workloads/memmap_batches.py", (BFLOAT16, FUSED)),
    Case("tests/workloads/gradient_accumulation.py", (BFLOAT16, FUSED)),
    Case("tests/workloads/gan.py", (BFLOAT16, FUSED)),
    Case("tests/workloads/evaluation_loop.py", (BFLOAT16, FUSED)),
    Case("tests/workloads/dict_batches.py", (BFLOAT16, LOADER)),
    Case("tests/workloads/short_last_batch.py", (COMPILE, FUSED)),
    Case("tests/workloads/lightning_module.py", (BFLOAT16, FUSED), left_out=("mixed-precision",)),
    Case("tests/workloads/hugging_face_trainer.py", (BFLOAT16, THREADS), left_out=("mixed-precision",)),
    Case("tests/workloads/accelerate_accumulate.py", (BFLOAT16, FUSED, LOADER, COMPILE), left_out=("loader",)),
    Case("tests/workloads/already_tuned.py", (BFLOAT16, CHANNELS, LOADER, THREADS)),
    Case("tests/workloads/bare_except.py", (BFLOAT16, FUSED, MATMUL)),
    Case("tests/workloads/bce_module.py", (FUSED, LOADER, THREADS, COMPILE)),
    Case("tests/workloads/catches_interrupt.py", (BFLOAT16, FUSED)),
    Case("tests/workloads/checkpoints.py", (BFLOAT16, FUSED, COMPILE)),
    Case("tests/workloads/dqn.py", (BFLOAT16, FUSED, MATMUL), left_out=("mixed-precision",)),
    Case("tests/workloads/graph_network.py", (BFLOAT16, FUSED, THREADS), left_out=("mixed-precision",)),
    Case("tests/workloads/infinite_loader.py", (BFLOAT16, LOADER, MATMUL)),
    Case("tests/workloads/iterable_stream.py", (BFLOAT16, FUSED, LOADER), left_out=("loader",)),
    Case("tests/workloads/layerwise.py", (BFLOAT16, FUSED, COMPILE), left_out=("mixed-precision", "compile")),
    Case("tests/workloads/lbfgs.py", (MATMUL, COMPILE)),
    Case("tests/workloads/ppo.py", (BFLOAT16, FUSED, COMPILE), left_out=("mixed-precision", "compile")),
    Case("tests/workloads/sac.py", (BFLOAT16, FUSED, THREADS), left_out=("mixed-precision",)),
    Case("tests/workloads/scheduler_constructors.py", (BFLOAT16, FUSED)),
    Case("tests/workloads/unseeded.py", (BFLOAT16, FUSED)),
    Case("tests/workloads/spawned_trainer.py", (BFLOAT16, FUSED)),
    Case("tests/workloads/spawned_ddp.py", (BFLOAT16, FUSED, LOADER)),
    Case(
        "tests/workloads/configured/train.py",
        (BFLOAT16, FUSED),
        arguments=("--batch_size=20",),
        folder="tests/workloads/configured",
    ),
    Case("packaged.train", (BFLOAT16, LOADER, COMPILE), folder="tests/workloads"),
)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda it: "-".join([Path(it.target).stem, *(s.lever for s in it.plan)]))
def test_patched_equals_injected(case: Case, tmp_path: Path) -> None:
    workload = case.workload(tmp_path)
    executor = LocalExecutor(tmp_path / "runs")
    patch = patch_of(workload, case.plan, executor)
    assert {it.setting.lever: it.reason for it in patch.left_out}.keys() == set(case.left_out)
    assert patch.files
    copy = patched_copy(workload, encoded(patch), tmp_path)
    injected = launched(executor, workload, Plan(settings=patch.written))
    patched = launched(executor, copy, Plan())
    assert injected.steps.loss == patched.steps.loss
    assert all(it is not None for it in patched.steps.loss)
    originals = {it.path for it in patch.files}
    assert not originals & {it.file for it in patched.facts.sites}


def patch_of(workload: Workload, plan: tuple[Setting, ...], executor: LocalExecutor) -> Patch:
    observed = executor.launch(
        LaunchRequest(assignment=Assignment(workload=workload, instruments=(Observe(),)), steps=4)
    )
    assert isinstance(observed.ending, Stopped), observed.ending
    facts = observed.facts
    changes = [(it, find(it.lever).rewrite(facts, it)) for it in plan]
    return make_patch(
        facts, changes, script=script_of(workload), directory=Path(workload.directory), arguments=workload.arguments
    )


def launched(executor: LocalExecutor, workload: Workload, plan: Plan) -> Run:
    assignment = Assignment(workload=workload, plan=plan, instruments=(WithoutDropout(), AlignRandomness()))
    run = executor.launch(LaunchRequest(assignment=assignment, steps=STEPS))
    assert isinstance(run.ending, Stopped), run.ending
    assert len(run.steps.loss) >= STEPS
    return run
