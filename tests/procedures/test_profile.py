"""Looking for causes: the profiled launch, what it leaves in the study, and what findings do to a search."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript, Interrupt

from hotlap.diagnose import Profile
from hotlap.diagnose.shares import at_most, exactly
from hotlap.evidence import HostSync, RunEvidence, Window
from hotlap.experiment import findings as findings_of
from hotlap.experiment.options import Options
from hotlap.experiment.profiled_launch import ATTACHMENT
from hotlap.plan import setting
from hotlap.procedures.profile import profile
from hotlap.procedures.prospects import prospects_of
from hotlap.procedures.search import tune
from hotlap.records import (
    Assignment,
    CallSite,
    Ceilings,
    CollectEvidence,
    Crashed,
    Finding,
    LaunchRequest,
    Machine,
    ModelFacts,
    ReplayBatch,
    Run,
    Situation,
    Study,
    SweepLoader,
    TimedOut,
)
from hotlap.study import create_study, load_study, open_study

SITE = CallSite(role="model", file="train.py", line=7)
SYNC = HostSync(kind="item", phase="other", calls=40, steps=40, seconds=0.2, on_device=True, site=SITE)
LEVERS = named(lever("half"), lever("feed", proof="exact"))
EFFECTS = {setting("half"): Effect(compute=0.5), setting("feed"): Effect(data=0.05)}


def evidence_of(assignment: Assignment) -> CollectEvidence:
    found = assignment.instrument(CollectEvidence)
    assert found is not None
    return found


def bounded(rule: str, share: float, *levers: str) -> Finding:
    return msgspec.structs.replace(costs(rule, share, *levers), share=at_most(share))


def costs(rule: str, share: float, *levers: str) -> Finding:
    return Finding(rule=rule, share=exactly(share), title=f"{rule} costs time.", levers=levers)


def finds_syncs(profile: Profile) -> tuple[Finding, ...]:
    """Replaces the rules: one finding if the evidence has a sync, and another once a lever was tried."""
    found = tuple(costs("host-sync", 0.2, "half") for _ in profile.evidence.syncs)
    return (*found, *(costs("tried", 0.1) for _ in profile.outcomes[:1]))


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings_of, "diagnose", finds_syncs)


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    """What a process would have written: its evidence, and a small trace of two steps."""
    steps = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{it}", "pid": 1, "tid": 1,
              "ts": 1000 * it, "dur": 990} for it in range(2)]  # fmt: skip
    call = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 100, "dur": 50}
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*steps, call]}), encoding="utf-8")
    window = Window(first_step=40, steps=2, wall_seconds=0.002, trace_path=str(trace))
    path = tmp_path / "evidence.json"
    path.write_bytes(msgspec.json.encode(RunEvidence(observed_steps=40, syncs=(SYNC,), window=window)))
    return path


def script(*evidence: Path, **more: Any) -> FakeScript:
    return FakeScript(effects=EFFECTS, evidence_paths=tuple(map(str, evidence)), **more)


def look(its: FakeScript, **options: Any) -> tuple[Study, FakeExecutor]:
    executor = FakeExecutor(its)
    return profile(WORKLOAD, Options(**options), executor, clock=executor.clock), executor


def launches(executor: FakeExecutor) -> list[LaunchRequest]:
    asked = [line for call in executor.requests for line in call.split(b"\n")]
    return [msgspec.json.decode(it, type=LaunchRequest) for it in asked if b'"assignment"' in it]


# -- a study without trials -------------------------------------------------------------------------


def test_a_profile_finds_causes_and_tries_nothing(evidence: Path) -> None:
    study, executor = look(script(evidence, has_loader=True))
    assert (study.kind, study.status) == ("profile", "finished")
    assert [it.rule for it in study.findings] == ["host-sync"]
    assert study.profiled_steps == 40 and study.trace_path == str(evidence.with_name("trace.json"))
    assert {it.name for it in study.ceilings} == {"loader-alone", "model-alone", "matmul"}
    assert not study.outcomes and not study.plan.settings and not study.warnings
    assert not any(it.assignment.plan.settings for it in launches(executor))


def test_a_loader_that_only_evaluates_bounds_no_step(evidence: Path) -> None:
    study, executor = look(script(evidence, has_loader=True, loader_trains=False))
    assert {it.name for it in study.ceilings} == {"matmul"}
    instruments = [made for it in launches(executor) for made in it.assignment.instruments]
    assert not any(isinstance(it, SweepLoader | ReplayBatch) for it in instruments)


def test_evidence_is_collected_in_one_launch_of_its_own(evidence: Path) -> None:
    """Neither the run of the time account nor any replicate is observed; the plan is, in a launch of its own."""
    executor = FakeExecutor(script(evidence, has_loader=True))
    tune(WORKLOAD, Options(), executor, levers=LEVERS, clock=executor.clock)
    watched = [it.assignment for it in launches(executor) if it.assignment.instrument(CollectEvidence)]
    assert [bool(it.plan.settings) for it in watched] == [False, True]
    assert all(evidence_of(it).profiled_steps >= 3 for it in watched)
    assert not any(b'"collect-evidence"' in it for it in executor.requests if b'"arms"' in it)
    assert sum(b'"collect-evidence"' in it for it in executor.requests) == 2


def test_steps_stay_within_a_script_that_ends_soon(evidence: Path) -> None:
    study, executor = look(script(evidence, total_steps=90))
    watched = next(it for it in launches(executor) if it.assignment.instrument(CollectEvidence))
    assert watched.steps == 88
    assert study.findings


@pytest.mark.parametrize("total_steps", [90, None])
def test_the_rules_get_the_duration_of_a_script_that_ends(
    evidence: Path, tmp_path: Path, total_steps: int | None
) -> None:
    executor = FakeExecutor(script(evidence, total_steps=total_steps))
    with create_study(tmp_path / "studies", WORKLOAD, Options()) as journal:
        study = profile(WORKLOAD, Options(), executor, journal=journal, clock=executor.clock)
        kept = journal.attachment(ATTACHMENT, Profile)
    assert kept is not None and study.baseline is not None
    assert kept.run_seconds == (study.baseline.wall_seconds if total_steps else 0.0)
    assert bool(kept.run_seconds) is bool(total_steps)


def test_every_rank_is_heard(evidence: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(msgspec.json.encode(msgspec.structs.replace(_read(evidence), rank=1, syncs=())))
    gone = tmp_path / "gone.json"
    root = tmp_path / "studies"
    executor = FakeExecutor(script(evidence, other, gone))
    with create_study(root, WORKLOAD, Options()) as journal:
        profile(WORKLOAD, Options(), executor, journal=journal, clock=executor.clock)
        kept = journal.attachment(ATTACHMENT, Profile)
    assert kept is not None and kept.evidence.syncs == (SYNC,)
    assert len(kept.breakdowns) == 2
    assert [it.name for it in kept.operators] == ["aten::mm"] and kept.host_time is not None


@pytest.mark.parametrize(
    ("its", "says"),
    [
        (FakeScript(), "returned no evidence"),
        (FakeScript(evidence_paths=("/nowhere/evidence.json",)), "returned no evidence"),
        (FakeScript(profiled_ending=Crashed(exit_code=1, error="RuntimeError: planted")), "planted"),
        (FakeScript(profiled_ending=TimedOut(limit_seconds=9.0)), "It made no progress for 9 s"),
    ],
)
def test_a_profiled_launch_that_fails_is_a_warning(its: FakeScript, says: str) -> None:
    study, executor = look(its)
    watched = next(it.assignment for it in launches(executor) if it.assignment.instrument(CollectEvidence))
    assert watched.startup_limit_seconds < 60 and watched.block_limit_seconds < 120
    assert (study.status, study.profiled_steps, study.findings) == ("finished", 0, ())
    assert len(study.warnings) == 1 and says in study.warnings[0]
    assert "time account and the ceilings alone" in study.warnings[0]


@pytest.mark.parametrize("text", [b"", b"{", b'{"observed_steps": "many"}', b"[]", b"\xff\xfe"])
def test_evidence_that_cannot_be_read_is_no_evidence(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "evidence.json"
    path.write_bytes(text)
    study, _ = look(script(path))
    assert study.profiled_steps == 0 and "returned no evidence" in study.warnings[0]


class _EndsSooner(FakeExecutor):
    """A script that trains for fewer steps when it is observed than it did before: until a time or a loss is
    reached."""

    def __init__(self, its: FakeScript, *steps: int) -> None:
        super().__init__(its)
        self._steps = iter(steps)

    def launch(self, request: LaunchRequest) -> Run:
        if request.assignment.instrument(CollectEvidence):
            total = next(self._steps, None)
            self.script = replace(self.script, total_steps=total)  # type: ignore[has-type]
        return super().launch(request)


def without_window(evidence: Path) -> Path:
    seen = msgspec.json.decode(evidence.read_bytes(), type=RunEvidence)
    evidence.write_bytes(msgspec.json.encode(msgspec.structs.replace(seen, window=None)))
    return evidence


def look_while_it_ends(evidence: Path, *steps: int) -> tuple[Study, list[LaunchRequest]]:
    executor = _EndsSooner(script(evidence), *steps)
    study = profile(WORKLOAD, Options(), executor, clock=executor.clock)
    return study, [it for it in launches(executor) if it.assignment.instrument(CollectEvidence)]


def test_a_script_that_ended_before_its_profiled_steps_is_watched_once_more_for_fewer(evidence: Path) -> None:
    study, watched = look_while_it_ends(evidence, 40)
    assert [it.steps for it in watched][1:] == [38] and watched[0].steps > 40
    assert evidence_of(watched[1].assignment).profiled_steps >= 3
    assert study.findings and study.trace_path and not study.warnings


@pytest.mark.parametrize(("steps", "launched", "ended"), [((40, 20), 2, 20), ((7,), 1, 7)])
def test_a_script_that_ends_before_its_profiled_steps_is_said_to(
    evidence: Path, steps: tuple[int, ...], launched: int, ended: int
) -> None:
    study, watched = look_while_it_ends(without_window(evidence), *steps)
    assert len(watched) == launched
    (warning,) = study.warnings
    last = watched[-1].steps
    first = last - evidence_of(watched[-1].assignment).profiled_steps + 1
    assert f"the script ended after {ended} steps, and steps {first} to {last} were to be" in warning
    assert "Let it train longer" in warning and "can be read" not in warning


def test_a_launch_without_profiled_steps_says_what_that_leaves_out(evidence: Path) -> None:
    study, _ = look(script(without_window(evidence)))
    assert study.warnings == ("No steps were profiled. Causes that only a trace shows were not checked.",)


@pytest.mark.parametrize("text", ["", "{", "no trace", '{"traceEvents": []}'])
def test_a_trace_that_cannot_be_read_leaves_the_rest(evidence: Path, text: str) -> None:
    evidence.with_name("trace.json").write_text(text, encoding="utf-8")
    study, _ = look(script(evidence))
    assert [it.rule for it in study.findings] == ["host-sync"]
    assert study.trace_path == "" and "no readable trace" in study.warnings[0]


def test_a_rule_that_stumbles_ends_nothing(evidence: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumbles(profile: Profile) -> tuple[Finding, ...]:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(findings_of, "diagnose", stumbles)
    executor = FakeExecutor(script(evidence))
    study = tune(WORKLOAD, Options(), executor, levers=LEVERS, clock=executor.clock)
    assert {it.lever for it in study.plan.settings} == {"half", "feed"}
    assert any("a rule failed (ZeroDivisionError" in it for it in study.warnings)


# -- budgets ----------------------------------------------------------------------------------------


def test_what_a_small_budget_does_not_allow_is_left_out_and_said(evidence: Path) -> None:
    study, executor = look(script(evidence, has_loader=True, loader_workers=2), budget_seconds=14.0)
    assert study.findings and {it.name for it in study.ceilings} == {"matmul"}
    assert any("loader alone was not timed" in it for it in study.warnings)
    assert executor.seconds <= 14.0
    study, _ = look(script(evidence), budget_seconds=6.0)
    assert study.profiled_steps == 0 and any("was not profiled" in it for it in study.warnings)


def test_a_search_spends_only_a_share_of_its_budget_on_causes(evidence: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def watched(budget: float) -> list[LaunchRequest]:
        executor = FakeExecutor(script(evidence))
        study = tune(WORKLOAD, Options(budget_seconds=budget), executor, levers=LEVERS, clock=executor.clock)
        assert executor.seconds <= budget
        found = [it for it in launches(executor) if it.assignment.instrument(CollectEvidence)]
        assert bool(found) != any("was not profiled" in it for it in study.warnings)
        return found

    shorter, longer = watched(180.0)[0].steps, watched(2000.0)[0].steps
    assert shorter < longer
    monkeypatch.setattr(sys.modules["hotlap.procedures.budget"], "SEARCH_SHARE", 0.01)
    assert not watched(180.0)


# -- in a search ------------------------------------------------------------------------------------


def test_a_profile_advises_only_levers_that_can_be_tried_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search says why the others cannot: a kernel for NVIDIA's GPUs, and what exchanges gradients."""
    found = costs("small-operators", 0.4, "liger-kernels", "keep-freed-memory", "no-sync")
    monkeypatch.setattr(findings_of, "diagnose", lambda known: (found,))
    executor = FakeExecutor(FakeScript())
    (advised,) = profile(WORKLOAD, Options(), executor, clock=executor.clock).findings
    assert advised.levers == ("keep-freed-memory",)
    executor = FakeExecutor(FakeScript(effects=EFFECTS))
    assert tune(WORKLOAD, Options(), executor, levers=LEVERS, clock=executor.clock).findings == (found,)


def test_levers_that_answer_a_finding_go_first() -> None:
    levers = [lever("low", bound=1.2), lever("high", bound=5.0), lever("named", bound=1.1), lever("more", bound=1.1)]
    found = (costs("a", 0.05, "named"), costs("b", 0.3, "more"), costs("c", 0.1, "more"))

    def order(findings: tuple[Finding, ...]) -> list[str]:
        return [it.lever.name for it in prospects_of(levers, Situation(), Options(), findings)[0]]

    assert order(()) == ["high", "low", "named", "more"]
    assert order(found) == ["more", "named", "high", "low"]
    assert order((costs("a", 0.9, "nothing"),)) == order(())
    assert order((bounded("a", 0.9, "named"), costs("c", 0.1, "more"))) == ["more", "named", "high", "low"]
    hint = Finding(rule="d", kind="hint", share=exactly(0.0), title="A hint.", levers=("low",))
    assert order((hint,)) == order(())


def test_a_search_profiles_again_once_levers_were_tried(evidence: Path) -> None:
    executor = FakeExecutor(script(evidence))
    study = tune(WORKLOAD, Options(), executor, levers=LEVERS, clock=executor.clock)
    assert study.kind == "search" and study.verification is not None
    assert [it.rule for it in study.findings] == ["host-sync", "tried"]
    assert next(iter(study.outcomes)).lever == "half"  # which answers a finding
    assert study.profiled_steps == 40


def test_a_resumed_search_needs_no_files_of_earlier_runs(evidence: Path, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def run(root: Path, interrupt: Interrupt | None, *, resume: bool = False) -> Study:
        executor = FakeExecutor(script(evidence), interrupt=interrupt)
        opened = open_study(root) if resume else create_study(root, WORKLOAD, Options())
        with opened as journal:
            return tune(WORKLOAD, Options(), executor, journal=journal, levers=LEVERS, clock=executor.clock)

    def anonymous(study: Study) -> Study:
        return msgspec.structs.replace(study, identifier="", started="", directory="")

    whole = run(tmp_path / "whole", None)
    with pytest.raises(Killed):
        run(tmp_path / "cut", Interrupt(6, Killed))
    for path in (evidence, evidence.with_name("trace.json")):
        path.unlink()
    assert load_study(tmp_path / "cut").findings
    resumed = run(tmp_path / "cut", None, resume=True)
    assert anonymous(resumed) == anonymous(whole)
    assert resumed.findings


def test_an_interrupted_profile_says_so(evidence: Path, tmp_path: Path) -> None:
    executor = FakeExecutor(script(evidence), interrupt=Interrupt(3, KeyboardInterrupt))
    with create_study(tmp_path, WORKLOAD, Options()) as journal:
        study = profile(WORKLOAD, Options(), executor, journal=journal, clock=executor.clock)
    assert (study.kind, study.status, study.findings) == ("profile", "interrupted", ())
    assert load_study(tmp_path) == study


def _read(path: Path) -> RunEvidence:
    return msgspec.json.decode(path.read_bytes(), type=RunEvidence)


# -- ceilings that are none ------------------------------------------------------------------------


class _OtherRates(FakeExecutor):
    """The same script on a machine that reached other rates."""

    def __init__(self, its: FakeScript, ceilings: Ceilings) -> None:
        super().__init__(its)
        self._ceilings = ceilings

    def machine(self) -> Machine:
        return msgspec.structs.replace(super().machine(), ceilings=self._ceilings)


def look_with(ceilings: Ceilings, *evidence: Path) -> Study:
    executor = _OtherRates(script(*evidence), ceilings)
    return profile(WORKLOAD, Options(), executor, clock=executor.clock)


def of_float32(rate: float, **more: Any) -> Ceilings:
    return Ceilings(matmul_flops_per_second=(("cpu:float32", rate),), **more)


def test_a_matmul_ceiling_is_what_the_machine_reached() -> None:
    (ceiling,) = look_with(of_float32(1e11)).ceilings
    assert ceiling.name == "matmul" and ceiling.bound_speedup


def test_a_step_faster_than_its_ceiling_leaves_no_ceiling() -> None:
    """At least 13.9 ms for a step of 9.8: the count of operations or the rate is wrong."""
    study = look_with(of_float32(1e8))
    assert not study.ceilings and study.model_flop_utilisation is None
    assert any("matmul ceiling is left out" in it and "1e+03 ms" in it for it in study.warnings)


CONVOLUTIONS = ModelFacts(kind="ConvNet", parameters=9, convolutions=2, flops_per_step=1e8)


class _OnDevice(_OtherRates):
    """The same script on a device whose products are a thousand times as fast in TensorFloat-32."""

    def __init__(self, **facts: Any) -> None:
        rates = (("cuda:float32", 1e9), ("cuda:tf32", 1e12))
        super().__init__(script(), Ceilings(matmul_flops_per_second=rates))
        self._changed = facts

    def launch(self, request: LaunchRequest) -> Run:
        run = super().launch(request)
        return msgspec.structs.replace(run, facts=msgspec.structs.replace(run.facts, device="cuda", **self._changed))


@pytest.mark.parametrize(
    ("facts", "format_name"),
    [
        ({"matmul_precision": "high"}, "tf32"),
        ({"cudnn_tf32": True, "models": (CONVOLUTIONS,)}, "tf32"),
        ({"models": (CONVOLUTIONS,)}, ""),
        ({"autocast_dtype": "bfloat16", "matmul_precision": "high"}, ""),
        ({}, ""),
    ],
)
def test_a_step_is_compared_with_the_format_it_may_compute_in(facts: dict[str, Any], format_name: str) -> None:
    executor = _OnDevice(**facts)
    study = profile(WORKLOAD, Options(), executor, clock=executor.clock)
    assert [f"at the {format_name} rate" in it.text for it in study.ceilings] == ([True] if format_name else [])
    assert study.model_flop_utilisation is None or study.model_flop_utilisation <= 1


def test_a_rate_in_doubt_bounds_nothing_and_says_why() -> None:
    doubt = "Other programs kept 1.6 of 2 cores busy while these rates were measured."
    (ceiling,) = look_with(of_float32(1e11, doubts=(("cpu", doubt),))).ceilings
    assert ceiling.bound_speedup is None and ceiling.seconds_per_sample is None
    assert ceiling.text.endswith(f"That rate is uncertain. {doubt}")
    (of_another_device,) = look_with(of_float32(1e11, doubts=(("cuda", doubt),))).ceilings
    assert of_another_device.bound_speedup


def test_a_rate_that_the_scripts_own_operators_exceed_is_left_out(evidence: Path) -> None:
    window = msgspec.json.decode(evidence.read_bytes(), type=RunEvidence).window
    assert window is not None
    document = json.loads(Path(window.trace_path).read_text(encoding="utf-8"))
    side, microseconds = 256, 900
    call = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "dur": microseconds,
            "args": {"Input Dims": [[side, side], [side, side]], "Input type": ["float", "float"]}}  # fmt: skip
    document["traceEvents"][-1:] = [call | {"ts": start} for start in (1, 1001)]
    Path(window.trace_path).write_text(json.dumps(document), encoding="utf-8")
    reached = 2 * side**3 / microseconds * 1e6
    study = look_with(of_float32(reached / 1.3), evidence)
    assert not study.ceilings and study.model_flop_utilisation is None
    assert any("37.3 GFLOP/s, more than the 28.7 GFLOP/s of this machine's test" in it for it in study.warnings)
    believed = look_with(of_float32(reached / 1.2), evidence)
    assert believed.ceilings and not any("GFLOP/s" in it for it in believed.warnings)
