"""The plan of a search is profiled once, last, if the budget has room for it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript, Interrupt

from hotlap.diagnose.profile import Profile
from hotlap.evidence import MemoryTimeline, RunEvidence, Window
from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Assignment, CollectEvidence, Crashed, LaunchRequest, Study
from hotlap.study import PLAN_PROFILE, attachment_of, create_study, load_study, open_study

HALF = setting("half")
EFFECTS = {HALF: Effect(compute=0.5)}
LEVERS = named(lever("half"), lever("idle"))


def written(folder: Path, host_bytes: int) -> Path:
    """What a profiled process would have written: its evidence, and a trace of two steps."""
    folder.mkdir()
    steps = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{it}", "pid": 1, "tid": 1,
              "ts": 1000 * it, "dur": 990} for it in range(2)]  # fmt: skip
    trace = folder / "trace.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": steps}), encoding="utf-8")
    window = Window(first_step=40, steps=2, wall_seconds=0.002, trace_path=str(trace))
    memory = MemoryTimeline(host_bytes=(host_bytes,) * 3)
    path = folder / "evidence.json"
    path.write_bytes(msgspec.json.encode(RunEvidence(observed_steps=40, window=window, memory=memory)))
    return path


@pytest.fixture
def script(tmp_path: Path) -> FakeScript:
    before, after = written(tmp_path / "before", 2**30), written(tmp_path / "after", 2**29)
    return FakeScript(effects=EFFECTS, evidence_paths=(str(before),), plan_evidence_paths=(str(after),))


def searched(its: FakeScript, **options) -> tuple[Study, FakeExecutor]:
    executor = FakeExecutor(its)
    return tune(WORKLOAD, Options(**options), executor, levers=LEVERS, clock=executor.clock), executor


def watched(executor: FakeExecutor) -> list[Assignment]:
    single = [it for it in executor.requests if b'"assignment"' in it and b"\n" not in it]
    found = [msgspec.json.decode(it, type=LaunchRequest).assignment for it in single]
    return [it for it in found if it.instrument(CollectEvidence)]


def test_it_is_the_last_launch_and_like_that_of_the_script(script: FakeScript) -> None:
    study, executor = searched(script)
    before, after = watched(executor)
    assert not before.plan.settings and after.plan == study.plan and study.plan.settings == (HALF,)
    assert before.instruments == after.instruments
    assert b"collect-evidence" in executor.requests[-1]
    assert (study.plan_profiled_steps, study.plan_not_profiled) == (40, "")
    assert study.plan_trace_path == str(Path(script.plan_evidence_paths[0]).with_name("trace.json"))
    assert study.trace_path != study.plan_trace_path and study.status == "finished" and not study.warnings


def test_its_evidence_is_kept_next_to_that_of_the_script(script: FakeScript, tmp_path: Path) -> None:
    executor = FakeExecutor(script)
    with create_study(tmp_path / "studies", WORKLOAD, Options()) as journal:
        study = tune(WORKLOAD, Options(), executor, journal=journal, levers=LEVERS, clock=executor.clock)
    kept = attachment_of(Path(study.directory), PLAN_PROFILE, Profile)
    assert kept is not None and kept.plan == study.plan and kept.evidence.memory.host_bytes == (2**29,) * 3


@pytest.mark.parametrize(("levers", "options"), [(named(lever("idle")), {}), (LEVERS, {"quick": True})])
def test_without_a_plan_there_is_none(script: FakeScript, levers, options) -> None:
    executor = FakeExecutor(script)
    study = tune(WORKLOAD, Options(**options), executor, levers=levers, clock=executor.clock)
    assert len(watched(executor)) == 1
    assert (study.plan_profiled_steps, study.plan_trace_path, study.plan_not_profiled) == (0, "", "")


def test_it_takes_no_time_that_the_budget_lacks(script: FakeScript) -> None:
    """For every budget that proves the plan, it is profiled within the budget, or the study says why not."""
    script = replace(script, effects={HALF: Effect(compute=0.5, startup_seconds=20.0)})
    reasons = set()
    for budget in range(300, 900, 30):
        study, executor = searched(script, budget_seconds=float(budget))
        if study.verification is None:
            continue
        profiled = len(watched(executor)) == 2
        assert profiled == bool(study.plan_profiled_steps) != bool(study.plan_not_profiled)
        assert not profiled or executor.seconds <= budget + script.startup_seconds
        reasons.add(study.plan_not_profiled.partition(":")[0])
    assert reasons == {"", "The plan was not profiled"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"plan_profiled_ending": Crashed(exit_code=1, error="RuntimeError: planted")}, "RuntimeError: planted"),
        ({"plan_evidence_paths": ("/nowhere/evidence.json",)}, "its launch returned no evidence"),
    ],
)
def test_a_failed_launch_costs_nothing_but_the_picture(script: FakeScript, change, reason: str) -> None:
    expected, _ = searched(script)
    study, _ = searched(replace(script, **change))
    assert reason in study.plan_not_profiled and study.plan_not_profiled.startswith("The plan could not be profiled")
    assert not (study.plan_profiled_steps or study.plan_trace_path or study.warnings)
    assert (study.plan, study.verification, study.status) == (expected.plan, expected.verification, "finished")


class Killed(BaseException):
    """In place of kill -9."""


@pytest.mark.parametrize("error", [Killed, KeyboardInterrupt])
def test_a_search_cut_there_keeps_its_answer_and_goes_on(script: FakeScript, tmp_path: Path, error) -> None:
    whole, executor = searched(script)
    last = len(executor.requests)

    def run(interrupt: Interrupt | None, resume: bool) -> Study:
        cut = FakeExecutor(script, interrupt=interrupt)
        opened = open_study(tmp_path / "cut") if resume else create_study(tmp_path / "cut", WORKLOAD, Options())
        with opened as journal:
            return tune(WORKLOAD, Options(), cut, journal=journal, levers=LEVERS, clock=cut.clock)

    with suppress(Killed):
        run(Interrupt(last, error), resume=False)
    cut = load_study(tmp_path / "cut")
    assert cut.status == "interrupted" and cut.verification == whole.verification and cut.plan == whole.plan
    resumed = run(None, resume=True)
    assert (resumed.status, resumed.plan_trace_path) == ("finished", whole.plan_trace_path)
    for it in (*script.evidence_paths, *script.plan_evidence_paths):
        Path(it).unlink()
    assert run(None, resume=True).plan_trace_path == whole.plan_trace_path
