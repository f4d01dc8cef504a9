"""``hotlap infer serve.py``: the calls of a model in an unmodified script are found, and levers are put under them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from inference.test_infer import FakeModel

from hotlap import api
from hotlap.api.patches import patch_of
from hotlap.cli.main import main
from hotlap.errors import ScriptError, StudyError
from hotlap.experiment.options import Options
from hotlap.measure.quality import compared_outputs, outputs_of
from hotlap.procedures.call_advice import call_findings
from hotlap.procedures.infer import infer
from hotlap.records import (
    Assignment,
    CaptureOutputs,
    Completed,
    Crashed,
    LaunchRequest,
    Observe,
    Plan,
    Run,
    Setting,
    Skipped,
    Stopped,
    Study,
    Workload,
)
from hotlap.render.markdown import markdown_report
from hotlap.study import open_study
from hotlap.trial.local import LocalExecutor

SERVED = Workload(kind="script", target="serve.py", directory="/", python="py")


def launched(folder: Path, *arguments: str, lever: Setting | None = None, steps: int = 8, **fields: object) -> Run:
    shutil.copy(Path(__file__).with_name("script.py"), folder / "serve.py")
    workload = Workload(
        kind="script", target="serve.py", arguments=arguments, directory=str(folder), python=sys.executable
    )
    plan = Plan(settings=(lever,) if lever is not None else ())
    assignment = Assignment(workload=workload, step_source="call", plan=plan, **fields)  # type: ignore[arg-type]
    return LocalExecutor(folder / "runs").launch(LaunchRequest(assignment=assignment, steps=steps))


def test_each_call_in_the_loop_is_a_step(tmp_path: Path) -> None:
    run = launched(tmp_path, "no-grad", "1000", instruments=(Observe(),))
    assert isinstance(run.ending, Stopped), run.ending
    assert len(run.steps.wall_seconds) == 8 and set(run.steps.samples) == {8}
    facts = run.facts
    assert facts.step_source == "call" and facts.calls_in_script and not run.notes
    (model,) = facts.models
    assert (model.kind, model.linears) == ("Net", 2)
    (site,) = (it for it in facts.sites if it.role == "model")
    source = (tmp_path / "serve.py").read_text().splitlines()
    assert "logits = model(torch.randn(samples, 16))" in source[site.line - 1] and site.function == "main"


def test_calls_that_record_gradients_are_noted(tmp_path: Path) -> None:
    run = launched(tmp_path, "with-gradients", "1000")
    assert isinstance(run.ending, Stopped), run.ending
    assert any("record gradients" in it for it in run.notes)


def test_levers_hold_for_the_call_alone(tmp_path: Path) -> None:
    capture = (CaptureOutputs(),)
    plain = launched(tmp_path, "any-format", "40", steps=32, instruments=capture)
    autocast = Setting(lever="mixed-precision", values=(("dtype", "bfloat16"),))
    half = launched(tmp_path, "any-format", "40", lever=autocast, steps=32, instruments=capture)
    assert isinstance(half.ending, (Stopped, Completed)), half.ending
    found = compared_outputs(outputs_of(plain.outputs_path), outputs_of(half.outputs_path))
    assert not isinstance(found, str) and 1e-5 < found[0].worst_relative_error < 0.05
    assert len(outputs_of(plain.outputs_path)) == 33, "32 calls and the weights"
    refused = launched(tmp_path, "no-grad", "40", lever=autocast)
    assert isinstance(refused.ending, Crashed) and "AssertionError" in refused.ending.error


@pytest.mark.parametrize("how", ["no-grad", "with-states"])
def test_a_script_gets_the_outputs_of_16_bit_weights_in_the_format_it_expects(how: str, tmp_path: Path) -> None:
    capture = (CaptureOutputs(),)
    plain = launched(tmp_path, how, "40", steps=32, instruments=capture)
    weights = Setting(lever="half-weights", values=(("dtype", "bfloat16"),))
    half = launched(tmp_path, how, "40", lever=weights, steps=32, instruments=capture)
    assert isinstance(half.ending, (Stopped, Completed)), half.ending
    found = compared_outputs(outputs_of(plain.outputs_path), outputs_of(half.outputs_path))
    assert not isinstance(found, str) and 1e-5 < found[0].worst_relative_error < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("lever", ["inference-mode", "compile"])
def test_other_levers_run_in_the_script(tmp_path: Path, lever: str) -> None:
    values = (("dynamic", False), ("mode", "default")) if lever == "compile" else ()
    capture = (CaptureOutputs(),)
    plain = launched(tmp_path, "no-grad", "200", steps=32, instruments=capture)
    run = launched(tmp_path, "no-grad", "200", lever=Setting(lever=lever, values=values), steps=32, instruments=capture)
    assert isinstance(run.ending, Stopped), run.ending
    assert lever != "compile" or run.compile.graphs
    found = compared_outputs(outputs_of(plain.outputs_path), outputs_of(run.outputs_path))
    assert not isinstance(found, str) and found[0].worst_relative_error < 1e-5


@pytest.mark.slow
def test_a_script_is_searched_and_patched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(Path(__file__).with_name("script.py"), tmp_path / "serve.py")
    monkeypatch.chdir(tmp_path)
    words = ["infer", "--quiet", "--delta", "0.9", "--rounds", "4", "--only", "inference-mode,cpu-threads"]
    assert main([*words, "serve.py", "no-grad", "1000000"]) in (0, 1)
    (folder,) = (it for it in (tmp_path / ".hotlap" / "infer").iterdir() if it.is_dir())
    study = api.load_study(folder)
    assert study.status == "finished" and study.workload.target == "serve.py"
    plan = Plan(settings=(Setting(lever="inference-mode"),))
    diff = patch_of(msgspec.structs.replace(study, plan=plan)).files[0].after
    assert "torch.inference_mode()" in diff


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "written"),
    [
        ((Setting(lever="inference-mode"),), "with torch.inference_mode():"),
        (
            (
                Setting(lever="inference-mode"),
                Setting(lever="compile", values=(("dynamic", False), ("mode", "default"))),
            ),
            "model.compile()",
        ),
    ],
    ids=["inference-mode", "compile"],
)
def test_the_patched_script_runs_and_answers_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: tuple[Setting, ...],
    written: str,
) -> None:
    """`hotlap infer`, `hotlap patch` with its proof, and the script before and after."""
    script = tmp_path / "serve.py"
    shutil.copy(Path(__file__).with_name("answering.py"), script)
    monkeypatch.chdir(tmp_path)
    before = answers(script)
    words = ["infer", "--quiet", "--budget", "90s", "--delta", "0.9", "--rounds", "4", "--only", "inference-mode"]
    assert main([*words, "serve.py", "1000000"]) in (0, 1, 4)
    (folder,) = (it for it in (tmp_path / ".hotlap" / "infer").iterdir() if it.is_dir())
    with open_study(folder) as journal:  # what would be kept on another machine
        found = msgspec.structs.replace(api.load_study(folder), plan=Plan(settings=settings), status="finished")
        journal.save(found)
    capsys.readouterr()
    assert main(["patch", "--write", "--delta", "0.9", str(folder)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Outputs agree to the last bit" in shown or "relative error" in shown, shown
    assert written in script.read_text()
    assert answers(script) == before and len(before) == 20


def answers(script: Path) -> list[str]:
    """What the script prints."""
    ran = subprocess.run([sys.executable, str(script), "30"], capture_output=True, text=True, check=True, timeout=300)
    return ran.stdout.splitlines()


# -- the search, on a model of arithmetic ------------------------------------------------------------------


class FakeScript(FakeModel):
    def _run(self, arm: Assignment, steps: int, seed: int) -> Run:
        run = super()._run(arm, steps, seed)
        facts = msgspec.structs.replace(run.facts, calls_in_script=True, inputs=32)
        return msgspec.structs.replace(run, facts=facts)


def test_engines_are_skipped_and_the_patch_is_offered(tmp_path: Path) -> None:
    study = infer(SERVED, Options(), FakeScript(folder=tmp_path, engines=True))
    assert {it.lever for it in study.plan.settings} == {"half-weights", "inference-mode"}
    verdict = next(it.verdict for it in study.outcomes if it.lever == "onnx-runtime")
    assert isinstance(verdict, Skipped) and "takes the place of the script's own" in verdict.reason
    shown = " ".join(markdown_report(study).split())
    assert "hotlap patch" in shown and "export artefact" not in shown
    assert "on 1 input" in shown, "outputs of one call were stored"


def test_calls_with_one_sample_are_a_hint_with_their_line(tmp_path: Path) -> None:
    run = launched(tmp_path, "no-grad", "1000", "1", instruments=(Observe(),))
    (advice,) = call_findings(run)
    assert advice is not None and advice.site is not None and advice.site.file.endswith("serve.py")
    assert "single sample" in advice.title
    assert call_findings(msgspec.structs.replace(run, steps=msgspec.structs.replace(run.steps, samples=(8,)))) == ()


def test_a_script_without_calls_is_said(tmp_path: Path) -> None:
    class NoCalls(FakeScript):
        def _run(self, arm: Assignment, steps: int, seed: int) -> Run:
            run = super()._run(arm, steps, seed)
            steps_of_none = msgspec.structs.replace(run.steps, wall_seconds=(), samples=(), phases=(), loss=())
            return msgspec.structs.replace(run, steps=steps_of_none, blocks=(), ending=Completed())

    with pytest.raises(ScriptError, match="no model was called twice"):
        infer(SERVED, Options(), NoCalls(folder=tmp_path))


def test_functions_have_no_script_to_patch() -> None:
    target = Workload(kind="inference", target="a:b", directory="/", python="py")
    plan = Plan(settings=(Setting(lever="inference-mode"),))
    with pytest.raises(StudyError, match="there is no script to change"):
        patch_of(Study(workload=target, kind="inference", plan=plan))


def test_options_of_functions_are_refused_for_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "--metric", "a:b", "serve.py"]) == 2
    assert "--metric is for functions" in capsys.readouterr().err
