"""The search over levers of inference, on a model of arithmetic, and the command that reports it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pytest
from fake_executor import FakeExecutor
from fakes import MACHINE

import hotlap
from hotlap import api
from hotlap.api import engine
from hotlap.cli.main import main
from hotlap.experiment.options import Options
from hotlap.gain import claimed
from hotlap.objective import for_inference, pareto_front
from hotlap.procedures.infer import infer
from hotlap.records import (
    ENGINE_PACKAGES,
    USUAL_LEVEL,
    Assignment,
    CaptureOutputs,
    Crashed,
    Ending,
    EngineReport,
    Failed,
    Kept,
    LaunchRequest,
    Machine,
    ModelFacts,
    NoGain,
    NotVerified,
    Plan,
    QualityLost,
    Replicate,
    Run,
    ScriptFacts,
    ShiftSeeds,
    Skipped,
    Study,
    TaskQuality,
    TurnRequest,
    Workload,
)
from hotlap.render.blocks import Bullets, Table
from hotlap.render.html.charts import candidates as drawn_candidates
from hotlap.render.kinds.api import presenter_of
from hotlap.render.markdown import markdown_report
from hotlap.render.material import Material
from hotlap.render.sections import candidates

WORKLOAD = Workload(
    kind="inference", target="serve:make_model", arguments=("--inputs", "serve:make_inputs"), directory="/", python="py"
)
LOGITS = np.random.default_rng(0).normal(size=(32, 10)).astype(np.float32)


_SEGFAULT = Crashed(exit_code=-11, error="Segmentation fault")


@dataclass
class FakeModel(FakeExecutor):
    """``errors`` is the relative error that a lever brings in, or a lever in one precision ("openvino int8"), NaN where
    its outputs are; with ``ignored`` levers in its plan the model computes in its own format all the same."""

    folder: Path = Path()
    factors: dict[str, float] = field(default_factory=lambda: {"half-weights": 2.0, "inference-mode": 1.1})
    errors: dict[str, float] = field(default_factory=lambda: {"half-weights": 1e-3})
    drawn: bool = False
    ignored: frozenset[str] = frozenset()
    crashes: frozenset[str] = frozenset()
    fault: Ending = _SEGFAULT
    engines: bool = False
    smaller: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    launched: list[LaunchRequest] = field(default_factory=list)

    def machine(self) -> Machine:
        return msgspec.structs.replace(MACHINE, native_dtypes=("float32", "bfloat16"))

    def launch_together(self, requests: Sequence[LaunchRequest]) -> tuple[Run, ...]:
        return tuple(map(self.launch, requests))

    def launch(self, request: LaunchRequest) -> Run:
        self.launched.append(request)
        run = super().launch(request)
        arm = request.assignment
        if arm.instrument(CaptureOutputs) is None:
            return run
        outputs = LOGITS.copy()
        for it in arm.plan.settings:
            precision = f"{it.lever} {dict(it.values).get('precision', '')}"
            error = self.errors.get(precision, self.errors.get(it.lever, 0.0))
            outputs = outputs * (1 + error * np.sign(np.arange(10) - 4.5)).astype(np.float32)
        seed = 1 if self.drawn and arm.instrument(ShiftSeeds) is not None else 0
        path = self.folder / f"outputs-{next(self.numbers)}.npz"
        np.savez(path, **{"0/output": outputs, "weights": np.array([[seed, 100]])})  # type: ignore[arg-type]
        return msgspec.structs.replace(run, outputs_path=str(path))

    def _run(self, arm: Assignment, steps: int, seed: int) -> Run:
        run = super()._run(arm, steps, seed)
        levers = {it.lever for it in arm.plan.settings}
        half = "half-weights" in levers - self.ignored
        packages = ENGINE_PACKAGES if self.engines else ()
        model = ModelFacts(kind="Net", parameters=100, linears=2, dtype="bfloat16" if half else "float32")
        autocast = "bfloat16" if "mixed-precision" in levers else ""
        facts = ScriptFacts(step_source="call", inputs=1, threads=2, models=(model,), autocast_dtype=autocast)
        facts = msgspec.structs.replace(facts, packages=packages)
        peak = run.host_peak_bytes // 2 if levers & self.smaller else run.host_peak_bytes
        run = msgspec.structs.replace(run, facts=facts, engine=self._engine(arm.plan), host_peak_bytes=peak)
        if levers & self.crashes:
            return msgspec.structs.replace(run, ending=self.fault, blocks=())
        wall = run.steps.wall_seconds
        calls = msgspec.structs.replace(run.steps, phases=(("forward", wall),), loss=(None,) * len(wall))
        blocks = tuple(msgspec.structs.replace(it, first_step=8 * number) for number, it in enumerate(run.blocks))
        return msgspec.structs.replace(run, steps=calls, blocks=blocks)

    def _engine(self, plan: Plan) -> EngineReport | None:
        """An engine computes in the format asked for, unless its lever is ignored; one that is missing from
        its own graph takes no operator."""
        engine = next((it for it in plan.settings if it.lever in ("onnx-runtime", "openvino", "torchao-int8")), None)
        if engine is None or engine.lever in self.absent:
            return None
        precision = str(dict(engine.values).get("precision", "int8")).removesuffix("-dynamic")
        precision = "float32" if engine.lever in self.ignored else precision
        return EngineReport(
            engine=engine.lever,
            precision=precision,
            operators=0 if engine.lever in self.idle else 9,
            size_bytes=3 * 2**20,
        )


ENGINES = {"onnx-runtime": 3.0, "openvino": 4.0, "torchao-int8": 1.5, "half-weights": 2.0, "compile": 1.2}


def kept(study: Study) -> list[str]:
    return [it.lever for it in study.plan.settings]


def test_engines_compete_and_the_best_that_is_right_wins(tmp_path: Path) -> None:
    options = Options(only=tuple(ENGINES))
    study = search(tmp_path, options, engines=True, factors=ENGINES, errors={"openvino": 1e-3, "half-weights": 1e-3})
    assert kept(study) == ["openvino"]
    assert study.verification is not None and study.verification.speed.speedup.value == pytest.approx(4.0, rel=0.1)
    found = {it.plan.settings[-1].lever: it for it in study.candidates}
    assert set(found) == set(ENGINES)
    assert all(it.comparison.baseline == Plan() for it in found.values())
    assert found["openvino"].engine is not None and found["openvino"].engine.operators == 9
    assert isinstance(verdict(study, "onnx-runtime"), NoGain) and isinstance(verdict(study, "half-weights"), NoGain)


def test_launches_that_compare_outputs_load_what_was_compiled_before(tmp_path: Path) -> None:
    executor = FakeModel(folder=tmp_path)
    assert "half-weights" in kept(infer(WORKLOAD, Options(), executor))
    comparing = [it for it in executor.launched if it.assignment.instrument(CaptureOutputs) is not None]
    assert any(it.assignment.plan.settings for it in comparing) and all(it.loads_code for it in comparing)
    assert not any(it.loads_code for it in executor.launched if it not in comparing), "those say what a first run costs"


def test_candidates_are_a_table_and_the_pareto_front_is_marked(tmp_path: Path) -> None:
    options = Options(only=("onnx-runtime", "openvino"))
    study = search(tmp_path, options, engines=True, factors=ENGINES, errors={"openvino": 0.9, "onnx-runtime": 1e-3})
    front = {it.plan.settings[-1].lever for it in pareto_front(study.candidates)}
    assert front == {"openvino", "onnx-runtime"}  # the faster one, and the one that is right
    broken = search(tmp_path, options, engines=True, factors=ENGINES, errors={"openvino": float("nan")})
    assert {it.plan.settings[-1].lever for it in pareto_front(broken.candidates)} == {"onnx-runtime"}
    shown = markdown_report(study)
    assert "recommended" in shown and "openvino" in shown and "Pareto" in shown
    assert "If quality did not count, openvino" in shown


def test_the_table_of_candidates_has_no_empty_column(tmp_path: Path) -> None:
    options = Options(only=("onnx-runtime", "openvino"))
    study = search(tmp_path, options, engines=True, factors=ENGINES, errors={"openvino": 0.9})
    section = candidates.everywhere(Material(study=study))
    assert section is not None
    table, engines, _ = section.body
    assert isinstance(table, Table) and isinstance(engines, Bullets)
    assert all(any(row[number] for row in table.rows) for number in range(len(table.headings)))
    qualities = {row[0].partition(" ")[0]: row[-1] for row in table.rows}
    assert qualities["unmodified"] == qualities["onnx-runtime"] == "1" and "differ" in qualities["openvino"]
    assert any("onnx-runtime int8, 9 operators, 3.0 MiB on disk" in it for it in engines.lines)
    short = search(tmp_path, msgspec.structs.replace(options, rounds=4), engines=True, factors=ENGINES)
    again = candidates.everywhere(Material(study=short))
    assert again is not None and isinstance(again.body[0], Table)
    assert ">p50" in again.body[0].headings and ">p99" not in again.body[0].headings, "too few calls"


def test_the_fastest_engine_loses_to_one_that_is_right(tmp_path: Path) -> None:
    options = Options(only=("onnx-runtime", "openvino"))
    study = search(tmp_path, options, engines=True, factors=ENGINES, errors={"openvino": 0.9, "onnx-runtime": 1e-3})
    assert kept(study) == ["onnx-runtime"]
    assert isinstance(verdict(study, "openvino"), QualityLost)


def test_an_engine_replaces_what_torch_was_given(tmp_path: Path) -> None:
    factors = {"half-weights": 2.0, "onnx-runtime": 1.99, "openvino": 1.1}
    study = search(tmp_path, Options(only=tuple(factors)), engines=True, factors=factors, errors={})
    (only,) = kept(study)  # never two that exclude one another
    assert only in ("half-weights", "onnx-runtime")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"ignored": frozenset({"openvino"})}, "was requested, but openvino computed in float32."),
        ({"idle": frozenset({"openvino"})}, "ran no operator of the model."),
        ({"absent": frozenset({"openvino"})}, "the model ran without it."),
    ],
)
def test_an_engine_that_did_something_else_is_not_recommended(
    tmp_path: Path, fields: dict[str, frozenset[str]], said: str
) -> None:
    study = search(tmp_path, Options(only=("openvino",)), engines=True, factors={"openvino": 3.0}, errors={}, **fields)
    shown = [it for it in study.candidates if dict(it.plan.settings[-1].values)["precision"] != "float32"]
    assert shown and all(it.comparison.quality is not None for it in shown)
    assert all(said in it.comparison.quality.text for it in shown if it.comparison.quality is not None)
    assert not [it for it in study.plan.settings if dict(it.values)["precision"] != "float32"]


def test_an_engine_that_crashes_leaves_the_next_one(tmp_path: Path) -> None:
    options = Options(only=("onnx-runtime", "openvino"))
    study = search(tmp_path, options, engines=True, factors=ENGINES, errors={}, crashes=frozenset({"openvino"}))
    assert isinstance(verdict(study, "openvino"), Failed) and kept(study) == ["onnx-runtime"]


def test_the_median_of_calls_can_be_the_goal(tmp_path: Path) -> None:
    study = search(tmp_path, Options(objective=for_inference("latency", p99_seconds=None)))
    assert {it.lever for it in study.plan.settings} == {"half-weights", "inference-mode"}
    shown = markdown_report(study)
    assert "Use half-weights" in shown and "median time of a call 0.4" in shown and "of the unmodified model's" in shown


def test_only_what_keeps_the_p99_is_recommended(tmp_path: Path) -> None:
    """A call of the unmodified model takes 64 ms here, and 32 ms in half precision."""
    options = Options(objective=for_inference("throughput", p99_seconds=0.040), only=("half-weights",))
    kept_it = search(tmp_path, options)
    assert kept(kept_it) == ["half-weights"] and claimed(kept_it) is not None
    assert "p99 32.0 ms of 40.0 ms allowed" in markdown_report(kept_it)
    assert kept_it.verification is not None and kept_it.verification.load is not None
    strict = for_inference("throughput", p99_seconds=0.01)
    too_slow = search(tmp_path, Options(objective=strict, only=("half-weights",)))
    assert kept(too_slow) == [] and claimed(too_slow) is None
    assert "a limit was not kept. Its p99 is 32 ms" in too_slow.status_text
    assert "No recommendation" in markdown_report(too_slow)


def test_the_load_that_keeps_the_p99_is_reported(tmp_path: Path) -> None:
    """Calls of 64 ms and of 32 ms may take 80 ms: the latter leave 1.5 times their own time to wait in."""
    options = Options(objective=for_inference("throughput", p99_seconds=0.080), only=("half-weights",), rounds=16)
    study = search(tmp_path, options)
    assert study.verification is not None and study.verification.load is not None
    load = study.verification.load
    before, after = load.baseline.calls_per_second, load.candidate.calls_per_second
    assert before is not None and after is not None and load.ratio is not None
    assert 0 < before.value < 1 / 0.064 and before.value * 2 < after.value < 1 / 0.032
    shown = " ".join(markdown_report(study).split())
    assert f"Open-loop load: up to {after.value:.3g} calls per second" in shown and "not served" in shown
    section = candidates.everywhere(Material(study=study))
    assert section is not None and isinstance(section.body[0], Table)
    assert ">calls/s" in section.body[0].headings
    page = msgspec.to_builtins(study)
    assert page["verification"]["load"]["p99_seconds"] == 0.080
    short = search(tmp_path, msgspec.structs.replace(options, rounds=9))
    assert "is unknown: a launch timed fewer than 100 calls" in markdown_report(short)
    without = search(tmp_path, Options(only=("half-weights",)))
    assert without.verification is not None and without.verification.load is None
    assert "Open-loop" not in markdown_report(without)


def test_too_few_calls_show_no_p99(tmp_path: Path) -> None:
    objective = for_inference("throughput", p99_seconds=0.040)
    study = search(tmp_path, Options(objective=objective, only=("half-weights",), rounds=4))
    assert kept(study) == [] and "too few for a p99, of which 40 ms is allowed" in study.status_text


def test_memory_can_be_the_goal(tmp_path: Path) -> None:
    options = Options(objective=for_inference("memory", p99_seconds=None))
    study = search(tmp_path, options, smaller=frozenset({"half-weights"}))
    assert kept(study) == ["half-weights"]
    shown = markdown_report(study)
    assert "Use half-weights" in shown and "peak memory 0.50x of the unmodified model's" in shown
    refused = search(tmp_path, options, smaller=frozenset({"half-weights"}), errors={"half-weights": 0.9})
    shown = markdown_report(refused)
    assert "If quality did not count, half-weights" in shown and "would win with 2.00x less peak memory" in shown


def search(folder: Path, options: Options | None = None, **fields: object) -> Study:
    executor = FakeModel(folder=folder, **fields)  # type: ignore[arg-type]
    return infer(WORKLOAD, options or Options(), executor)


def verdict(study: Study, lever: str) -> object:
    return next(it.verdict for it in study.outcomes if it.lever == lever)


def test_what_is_faster_and_right_is_recommended(tmp_path: Path) -> None:
    study = search(tmp_path)
    assert (study.kind, study.status) == ("inference", "finished")
    assert {it.lever for it in study.plan.settings} == {"half-weights", "inference-mode"}
    assert study.verification is not None
    quality = study.verification.quality
    assert isinstance(quality, TaskQuality) and quality.verdict == "within"
    assert quality.level == USUAL_LEVEL and quality.random_share == 0
    (output,) = quality.outputs
    assert output.relative_error == pytest.approx(1e-3, rel=0.01)
    assert output.agreement is not None and output.decisions == 32
    latency = study.verification.candidate_latency
    assert latency is not None and latency.percentiles and latency.calls > 100


@pytest.mark.parametrize("error", [0.9, float("nan")])
def test_below_the_level_it_is_shown_and_not_recommended(tmp_path: Path, error: float) -> None:
    study = search(tmp_path, errors={"half-weights": error})
    lost = verdict(study, "half-weights")
    assert isinstance(lost, QualityLost) and lost.comparison is not None and lost.comparison.speed.speedup.value > 1.5
    assert {it.lever for it in study.plan.settings} == {"inference-mode"}


@pytest.mark.parametrize(("shapes", "steps"), [(((8, 16), (4, 16)), 40), (((8, 16),), 0)])
def test_warm_up_lasts_until_every_shape_has_occurred(
    tmp_path: Path, shapes: tuple[tuple[int, ...], ...], steps: int
) -> None:
    requested = set()

    class OfShapes(FakeModel):
        def _run(self, arm: Assignment, steps: int, seed: int) -> Run:
            run = super()._run(arm, steps, seed)
            models = tuple(msgspec.structs.replace(it, input_shapes=shapes) for it in run.facts.models)
            return msgspec.structs.replace(run, facts=msgspec.structs.replace(run.facts, models=models, inputs=40))

        def take_turns(self, request: TurnRequest) -> Replicate:
            requested.add(request.warm_up_steps)
            return super().take_turns(request)

    infer(WORKLOAD, Options(only=("half-weights",)), OfShapes(folder=tmp_path))
    assert requested == {steps}


def test_random_weights_prove_nothing_but_what_is_exact(tmp_path: Path) -> None:
    study = search(tmp_path, drawn=True)
    unknown = verdict(study, "half-weights")
    assert isinstance(unknown, NotVerified) and "drawn at random" in unknown.reason
    assert isinstance(verdict(study, "inference-mode"), Kept)
    accepted = search(tmp_path, Options(accept_unverified=True), drawn=True)
    assert "half-weights" in {it.lever for it in accepted.plan.settings}


def test_another_precision_than_requested_is_not_recommended(tmp_path: Path) -> None:
    study = search(tmp_path, ignored=frozenset({"half-weights"}))
    found = verdict(study, "half-weights")
    assert isinstance(found, NotVerified)
    assert "bfloat16 was requested, but the model computed in float32." in found.reason


def test_a_compiler_that_found_nothing_to_compile_is_not_recommended(tmp_path: Path) -> None:
    found = verdict(search(tmp_path, Options(only=("compile",)), factors={"compile": 1.5}), "compile")
    assert isinstance(found, NotVerified)
    assert "no graph was compiled" in found.reason


def test_a_lever_that_changes_nothing_at_all_is_a_finding(tmp_path: Path) -> None:
    options = Options(only=("mixed-precision",))
    factors, noise = {"mixed-precision": 1.0}, 0.0005
    study = search(tmp_path, options, factors=factors, errors={}, noise=noise)
    compared = search(tmp_path, options, factors=factors, errors={"mixed-precision": 1e-3}, noise=noise)
    assert [it.rule for it in study.findings] == ["silent-fallback"]
    assert not compared.findings


def test_a_crash_is_an_outcome_and_the_next_is_tried(tmp_path: Path) -> None:
    study = search(tmp_path, crashes=frozenset({"half-weights"}))
    assert isinstance(verdict(study, "half-weights"), Failed)
    assert isinstance(verdict(study, "inference-mode"), Kept)


def test_a_lever_without_a_place_here_is_skipped_with_its_reason(tmp_path: Path) -> None:
    found = verdict(search(tmp_path), "channels-last")
    assert isinstance(found, Skipped) and found.reason


def test_the_command_reports_one_recommendation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = api.Engine(executor=lambda directory, isolation: FakeModel(folder=tmp_path))
    goal = ["--goal", "throughput", "--p99", "50ms"]
    words = ["infer", "--quiet", *goal, "serve:make_model", "--inputs", "serve:make_inputs"]
    assert main(words, engine=engine) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Use half-weights" in shown and "faster (95 % interval" in shown
    assert "outputs keep a quality of 0.99 on 1 input" in shown
    assert "p50" in shown and "p90" in shown
    assert not [it for it in ("backward", "optimizer", "Most of a step", "host-to-device") if it in shown]
    assert "hotlap export artefact" in shown
    for words in (["report", "--json"], ["report"], ["report", "--markdown"], ["history"]):
        assert main(words, engine=engine) == 0
        assert "half-weights" in capsys.readouterr().out or words == ["history"]


def test_what_to_type_next_keeps_the_level_of_quality(tmp_path: Path) -> None:
    for options, words in (
        (Options(quality=0.9), "hotlap infer --quality 0.9 serve"),
        (Options(), "hotlap infer serve"),
    ):
        executor = FakeModel(folder=tmp_path, interrupt_after=8)
        study = infer(WORKLOAD, options, executor)
        assert study.status == "interrupted" and study.quality_level == options.quality
        (command, _), *_ = presenter_of("inference").next_commands(study, "")
        assert command.startswith(words)


def test_help_speaks_of_outputs_and_calls(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "verified that outputs keep the quality" in shown and "abort a trial if no call ends" in shown
    assert "training" not in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--p99", "0ms"], "not a time above zero"),
        (["--p99", "soon"], "not a time above zero"),
        (["--slowdown", "1.2"], "no effect when the goal is throughput"),
        (["--goal", "beauty"], "invalid choice"),
    ],
)
def test_goals_that_make_no_sense_are_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", *words, "serve:model", "--inputs", "serve:inputs"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["serve", "--inputs", "serve:inputs"], ["serve:model", "--inputs", "serve"], ["a:b"]]
)
def test_names_that_say_too_little_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", *words]) == 2
    assert "hotlap: " in capsys.readouterr().err


def test_it_is_called_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "local_executor", lambda directory, isolation: FakeModel(folder=tmp_path))
    monkeypatch.chdir(tmp_path)
    study = hotlap.infer("serve:make_model", inputs="serve:make_inputs", only=["half-weights"], quality=0.5)
    assert [it.lever for it in study.plan.settings] == ["half-weights"]
    assert study.verification is not None
    quality = study.verification.quality
    assert isinstance(quality, TaskQuality) and (quality.verdict, quality.level) == ("within", 0.5)
    assert Path(study.directory).parent == tmp_path / ".hotlap" / "infer"
    with pytest.raises(hotlap.HotlapError, match="names no function"):
        hotlap.infer("serve", inputs="serve:make_inputs")


def test_a_short_budget_is_for_what_runs_the_model(tmp_path: Path) -> None:
    levers = ("cpu-threads", "onnx-runtime", "half-weights")
    executor = FakeModel(folder=tmp_path, engines=True, factors=ENGINES)
    study = infer(WORKLOAD, Options(only=levers, budget_seconds=600), executor)
    order = [it.lever for it in study.outcomes if it.lever in levers]
    assert order.index("cpu-threads") == 2
    tried = {it.plan.settings[-1].lever for it in study.candidates}
    assert "onnx-runtime" in tried


def test_speed_and_quality_are_drawn(tmp_path: Path) -> None:
    options = Options(only=("onnx-runtime", "openvino"))
    study = search(tmp_path, options, engines=True, factors=ENGINES, errors={"openvino": 0.9, "onnx-runtime": 1e-3})
    (chart,) = drawn_candidates.for_page(Material(study=study))
    kinds = {row[0].partition(" ")[0]: row[-1] for row in chart.table.rows}
    assert kinds["openvino"] == "not recommendable" and "recommended" in kinds.values()
    assert not drawn_candidates.for_page(
        Material(study=msgspec.structs.replace(study, candidates=study.candidates[:1]))
    )
