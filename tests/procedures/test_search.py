"""The search on a fake script, whose true effects are known."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript

from hotlap.errors import ScriptError, UsageError
from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import (
    Completed,
    Crashed,
    Failed,
    Kept,
    NoGain,
    NotVerified,
    OutOfMemory,
    Progress,
    QualityLost,
    Skipped,
    Stopped,
    Study,
    TimedOut,
)
from hotlap.trial.denials import UNNAMED

LOADER, HALF, FUSED = setting("feed", choice="4"), setting("half"), setting("fused")
MANY = {
    setting("feed", choice="2"): Effect(data=0.6),
    LOADER: Effect(data=0.05),
    HALF: Effect(compute=0.5, loss=1.00001),
    FUSED: Effect(optimizer=0.4, loss=1.000001),
    setting("idle"): Effect(),
    setting("slow"): Effect(compute=1.3),
    setting("liar"): Effect(compute=0.3, loss=1.01),
    setting("broken"): Effect(fails="crash"),
    setting("stuck"): Effect(fails="hang"),
    setting("greedy"): Effect(fails="memory"),
    setting("wild"): Effect(compute=0.3, fails="diverge"),
}
LEVERS = named(
    lever("feed", "2", "4", proof="exact"),
    *(lever(name) for name in ("half", "fused", "idle", "slow", "liar", "broken", "stuck", "greedy", "wild")),
)


def search(
    script: FakeScript | None = None, *, levers=LEVERS, seed: int = 0, listen=lambda it: None, **options: Any
) -> tuple[Study, FakeExecutor]:
    executor = FakeExecutor(script or FakeScript(effects=MANY), seed=seed)
    study = tune(WORKLOAD, Options(**options), executor, listen, levers=levers, clock=executor.clock)
    return study, executor


def verdicts(study: Study) -> dict[str, Any]:
    return {it.lever: it.verdict for it in study.outcomes}


def test_finds_the_best_plan_and_verifies_it() -> None:
    study, executor = search()
    assert {it.lever: it for it in study.plan.settings} == {"feed": LOADER, "half": HALF, "fused": FUSED}
    assert study.status == "finished"
    assert study.verification is not None
    speed = study.verification.speed
    assert speed.verdict == "faster" and speed.replicates >= 5
    assert speed.speedup.low < executor.script.speedup(study.plan) * 1.02
    assert speed.speedup.high > executor.script.speedup(study.plan) * 0.98
    assert study.verification.quality is not None and study.verification.quality.verdict == "within"
    assert study.account_before is not None and study.account_after is not None
    assert study.account_after.wall < study.account_before.wall
    assert study.verification.candidate_peak_bytes == executor.script.peak_bytes


def test_every_lever_has_an_outcome_with_its_reason() -> None:
    found = verdicts(search()[0])
    assert set(found) == set(LEVERS)
    assert isinstance(found["liar"], QualityLost) and "no longer" in found["liar"].reason
    assert isinstance(found["idle"], NoGain) and found["idle"].reason
    assert isinstance(found["slow"], NoGain)
    assert isinstance(found["broken"], Failed) and isinstance(found["broken"].ending, Crashed)
    assert "planted" in found["broken"].reason
    assert isinstance(found["stuck"], Failed) and isinstance(found["stuck"].ending, TimedOut)
    assert isinstance(found["greedy"], Failed) and isinstance(found["greedy"].ending, OutOfMemory)
    assert isinstance(found["wild"], QualityLost) and "no longer finite" in found["wild"].reason


def test_an_exact_lever_must_agree_to_the_last_bit() -> None:
    feed = named(lever("feed", proof="exact"))
    honest, _ = search(FakeScript(effects={setting("feed"): Effect(data=0.1)}), levers=feed)
    kept = verdicts(honest)["feed"]
    assert isinstance(kept, Kept) and kept.comparison.quality is not None and kept.comparison.quality.verdict == "exact"
    assert honest.verification is not None and honest.verification.quality is not None
    assert honest.verification.quality.verdict == "exact"
    lying, _ = search(FakeScript(effects={setting("feed"): Effect(data=0.1, loss=1 + 1e-9)}), levers=feed)
    assert isinstance(verdicts(lying)["feed"], QualityLost)
    assert not lying.plan.settings and lying.verification is None


def test_a_loss_that_cannot_be_read_is_not_verified_and_kept_only_on_request() -> None:
    script = FakeScript(effects={HALF: Effect(compute=0.5)}, reads_loss=False)
    refused, _ = search(script, levers=named(lever("half")))
    assert isinstance(verdicts(refused)["half"], NotVerified)
    assert not refused.plan.settings
    accepted, _ = search(script, levers=named(lever("half")), accept_unverified=True)
    assert accepted.plan.settings == (HALF,)
    assert accepted.verification is not None and accepted.verification.quality is not None
    assert accepted.verification.quality.verdict == "not-verified"


def test_a_script_that_does_not_repeat_itself_verifies_nothing() -> None:
    script = FakeScript(effects={HALF: Effect(compute=0.5)}, repeatable=False)
    study, _ = search(script, levers=named(lever("half")))
    assert not study.plan.settings
    assert isinstance(verdicts(study)["half"], (NotVerified, QualityLost))


def test_the_second_best_is_tried_when_the_best_breaks_numbers() -> None:
    effects = {
        setting("half", choice="reckless"): Effect(compute=0.3, loss=1.05),
        setting("half", choice="careful"): Effect(compute=0.6),
    }
    study, _ = search(FakeScript(effects=effects), levers=named(lever("half", "reckless", "careful")))
    assert study.plan.settings == (setting("half", choice="careful"),)


def test_behaviour_is_tried_only_when_allowed_by_name() -> None:
    levers = named(lever("batch", proof="behaviour"))
    script = FakeScript(effects={setting("batch"): Effect(compute=0.5)})
    refused, _ = search(script, levers=levers)
    assert isinstance(verdicts(refused)["batch"], Skipped) and "--allow batch" in verdicts(refused)["batch"].reason
    allowed, _ = search(script, levers=levers, allow=("batch",))
    assert isinstance(verdicts(allowed)["batch"], (Kept, NotVerified))


def test_what_only_helps_next_to_another_lever_is_found() -> None:
    """While the loader limits the speed, a faster model gains nothing."""

    def compute_bound(situation) -> float:
        account = situation.account
        return account.wall / (account.wall - account.seconds_in("forward") - account.seconds_in("backward"))

    script = FakeScript(
        data=0.2, compute=0.0015, optimizer=0.0002, effects={LOADER: Effect(data=0.001), HALF: Effect(compute=0.5)}
    )
    levers = named(lever("feed", "4", proof="exact"), lever("half", bound=compute_bound))
    study, _ = search(script, levers=levers)
    assert {it.lever for it in study.plan.settings} == {"feed", "half"}


def test_a_lever_that_another_makes_idle_is_dropped() -> None:
    """Both halve the wait; the second one to be tried, or the first one in hindsight, gives nothing."""

    class Overlapping(FakeScript):
        def phases(self, plan, *, replay=False):
            seconds = super().phases(plan, replay=replay)
            if any(it.lever == "all" for it in plan.settings):
                seconds["data"] = 0.0001
            return seconds

    effects = {setting("some"): Effect(data=0.05), setting("all"): Effect(data=0.02, compute=0.9)}
    levers = named(lever("all", bound=1.5), lever("some", bound=3.0))
    study, _ = search(Overlapping(data=0.02, effects=effects), levers=levers)
    assert [it.lever for it in study.plan.settings] == ["all"]
    assert isinstance(verdicts(study)["some"], NoGain)


def test_skips_come_with_a_reason_and_cost_no_trial() -> None:
    levers = named(
        lever("done", obstacle=Skipped(reason="The script does it.", already=True)), lever("hopeless", bound=1.004)
    )
    study, executor = search(FakeScript(), levers=levers)
    found = verdicts(study)
    assert isinstance(found["done"], Skipped) and found["done"].already
    assert isinstance(found["hopeless"], Skipped) and found["hopeless"].bound == 1.004
    assert len(executor.requests) == 3  # the machine, the unmodified script, and once more under the profiler
    assert study.status == "finished" and not study.plan.settings


def test_only_and_skip() -> None:
    study, _ = search(only=("half", "idle"), skip=("idle",))
    assert [it.lever for it in study.plan.settings] == ["half"]
    left_out = verdicts(study)["feed"]
    assert isinstance(left_out, Skipped) and "--only" in left_out.reason


@pytest.mark.parametrize("workers", [0, 2])
def test_ceilings_are_measured_where_there_is_a_loader(workers: int) -> None:
    script = FakeScript(has_loader=True, loader_workers=workers, effects=MANY)
    study, executor = search(script, only=("half",))
    replayed = [it for it in executor.requests if b"replay-batch" in it]
    assert bool(replayed) == bool(workers), "a process that fetches its batches itself shows what the model alone takes"
    ceilings = {it.name: it for it in study.ceilings}
    assert set(ceilings) == {"loader-alone", "model-alone", "matmul"}
    truth = script.step_seconds(study.plan.__class__()) / (script.compute + script.optimizer)
    assert ceilings["model-alone"].bound_speedup == pytest.approx(truth, rel=0.1)
    assert ceilings["loader-alone"].seconds_per_sample == pytest.approx(0.002 / (1 + workers))
    interval = ceilings["model-alone"].bound_interval
    assert (interval is not None) == (workers > 0), "without workers the account is the ceiling"
    assert interval is None or interval[0] < truth < interval[1]
    assert study.model_flop_utilisation == pytest.approx(1e8 / 1e11 / 0.02, rel=0.01)


def test_what_a_trial_shows_becomes_a_finding() -> None:
    effects = {setting("mixed-precision"): Effect(compute=0.9)}
    script = FakeScript(effects=effects, launch_noise=0.001, round_noise=0.001)
    found = {it.rule: it for it in search(script, levers=named(lever("mixed-precision")))[0].findings}
    assert "1.07x" in found["small-mixed-precision-gain"].title or "1.08x" in found["small-mixed-precision-gain"].title
    large = FakeScript(effects={setting("mixed-precision"): Effect(compute=0.5)})
    rules = [it.rule for it in search(large, levers=named(lever("mixed-precision")))[0].findings]
    assert "small-mixed-precision-gain" not in rules


def test_outcomes_are_ordered_by_bound() -> None:
    levers = named(lever("low", bound=1.2), lever("high", bound=5.0), lever("middle", bound=2.0))
    study, _ = search(FakeScript(), levers=levers)
    assert [it.lever for it in study.outcomes] == ["high", "middle", "low"]


def test_progress_is_reported_at_every_stage() -> None:
    told: list[Progress] = []
    search(listen=told.append)
    stages = {it.stage for it in told}
    assert stages == {"machine", "baseline", "profile", "screening", "trial", "parity", "verification", "end"}
    assert all(it.text for it in told)
    assert any(it.running is not None for it in told)
    assert {it.lever for it in told if it.outcome is not None} == set(LEVERS)
    spent = [it.spent_seconds for it in told]
    assert spent == sorted(spent)
    replicates = [
        (it.replicates_done, it.replicates_planned)
        for it in told
        if it.stage == "verification" and it.replicates_planned
    ]
    assert replicates[:5] == [(done, 5) for done in range(5)], "of how many there will be, from the first on"


def test_the_same_world_gives_the_same_study() -> None:
    assert search()[0] == search()[0]
    assert search()[0] != search(seed=1)[0]


# -- memory and short scripts -------------------------------------------------------------------


def test_arms_that_do_not_fit_together_are_alternated() -> None:
    script = FakeScript(effects=MANY, peak_bytes=7_000_000_000)
    study, executor = search(script, only=("half",))
    assert b'"interleaved":false' in executor.requests[-1]
    assert study.plan.settings == (HALF,)


def test_a_script_that_ends_soon_is_timed_in_shorter_blocks() -> None:
    script = FakeScript(effects=MANY, total_steps=90, launch_noise=0.005, round_noise=0.005)
    study, _ = search(script, only=("half",))
    assert study.plan.settings == (HALF,)
    assert any("ends after 90 steps" in it for it in study.warnings)


# -- noise ------------------------------------------------------------------------------------------


def test_levers_that_give_nothing_are_not_kept() -> None:
    """The rate of studies that keep anything, over many fake scripts on which no lever has an effect."""
    levers = named(*(lever(name) for name in ("one", "two", "three", "four")))
    worlds = 60
    kept = [search(FakeScript(launch_noise=0.03), levers=levers, seed=seed)[0].plan.settings for seed in range(worlds)]
    assert sum(bool(it) for it in kept) <= 0.05 * worlds


def test_a_large_gain_is_found_in_noise() -> None:
    script = FakeScript(effects={HALF: Effect(compute=0.5)}, launch_noise=0.03)
    found = [search(script, levers=named(lever("half")), seed=seed)[0].plan.settings for seed in range(20)]
    assert sum(it == (HALF,) for it in found) >= 18


# -- budget -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [220, 300, 500, 900, 2000])
def test_a_budget_is_kept(budget: float) -> None:
    """What is reserved for the verification is an estimate: if it was too little, the study says so."""
    unverified = 0
    for seed in range(5):
        study, executor = search(seed=seed, budget_seconds=budget)
        assert executor.seconds <= budget
        assert study.spent_seconds == pytest.approx(executor.seconds)
        if study.plan.settings and study.verification is None:
            unverified += 1
            assert re.search("No time was left to verify|The budget ended before the plan was", study.status_text)
        elif study.plan.settings:
            assert study.verification.speed.verdict == "faster"
    assert unverified <= 1


# -- scripts that cannot be tuned -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "says", "code"),
    [
        (FakeScript(baseline_ending=Crashed(exit_code=3, error="ValueError: no")), "before its first", 3),
        (FakeScript(baseline_ending=Crashed(exit_code=1, error="EOFError: EOF when reading a line")), "terminal", 1),
        (FakeScript(baseline_ending=Crashed(exit_code=1, error="E"), baseline_steps=30), "after 30 training", 1),
        (FakeScript(baseline_ending=Completed()), "no training step", 1),
        (FakeScript(baseline_ending=Completed(exit_code=4)), "exit code 4", 4),
        (FakeScript(baseline_ending=Completed(), baseline_steps=9), "ended after 9 training steps", 1),
        (FakeScript(baseline_ending=TimedOut(limit_seconds=600)), "No training step was seen", 1),
        (FakeScript(baseline_ending=OutOfMemory(error="x")), "out of memory", 1),
    ],
)
def test_a_script_that_cannot_be_tuned(script: FakeScript, says: str, code: int) -> None:
    executor = FakeExecutor(script)
    with pytest.raises(ScriptError, match=says) as caught:
        tune(WORKLOAD, Options(), executor, levers=LEVERS, clock=executor.clock)
    assert caught.value.exit_code == code
    assert caught.value.remedy and "train.py" in caught.value.where


@pytest.mark.parametrize(
    ("path", "error", "says", "remedy"),
    [
        (
            "out/t.parquet",
            "PermissionError: [Errno 13] Failed to open 'out/t.parquet'. Detail: [errno 13] Permission denied",
            "The script failed in isolation before its first training step was done: the kernel denied writing "
            "out/t.parquet (mode fence: what Python code writes goes to the run, all other writes are denied). Perm",
            "`--unprotected` runs trials without",
        ),
        (
            UNNAMED,
            "Exception: Permission denied (os error 13)",
            "probably the kernel denied writing a file that the error does not name (mode fence:",
            "Isolated by namespaces, trials could write there",
        ),
        (
            "out/t.json",
            "Exception: No such file or directory (os error 2)",
            "another program or library looked for out/t.json (mode fence: only Python code sees what Python",
            "`--unprotected` runs trials without",
        ),
        (
            "data/x.db",
            "OSError: [Errno 75] Value too large for defined data type: 'data/x.db'",
            "the kernel denied writing data/x.db (mode namespaces). OSError: [Errno 75]",
            "belongs to another user or group",
        ),
        (
            "/scratch/x",
            "OSError: [Errno 30] Read-only file system: '/scratch/x'",
            "the kernel denied writing /scratch/x (mode namespaces). OSError",
            "No layer of the run can cover that path.",
        ),
        (
            "ckpt",
            "OSError: [Errno 18] Invalid cross-device link: 'ckpt' -> 'old'",
            "the kernel denied renaming ckpt (mode namespaces). OSError",
            "a folder that was there before the run cannot be renamed",
        ),
    ],
)
def test_a_script_that_the_isolation_denied_a_write_is_not_blamed(
    path: str, error: str, says: str, remedy: str
) -> None:
    ending = Crashed(exit_code=1, error=error, denied_path=path)
    executor = FakeExecutor(FakeScript(baseline_ending=ending))
    with pytest.raises(ScriptError) as caught:
        tune(WORKLOAD, Options(), executor, levers=LEVERS, clock=executor.clock)
    assert says in caught.value.what
    assert remedy in caught.value.remedy and "run without hotlap" not in caught.value.remedy


def test_a_script_without_an_optimizer_is_counted_by_backwards() -> None:
    script = FakeScript(effects={HALF: Effect(compute=0.5)}, backwards_only=True)
    study, executor = search(script, levers=named(lever("half")))
    assert study.plan.settings == (HALF,)
    assert b'"step_source":"backward"' in executor.requests[-1]


@pytest.mark.parametrize(
    "options",
    [
        {"only": ("hlaf",)},
        {"skip": ("nothing",)},
        {"budget_seconds": 0.0},
        {"budget_seconds": float("nan")},
        {"delta": 0.0},
        {"rounds": 2},
        {"parity_steps": 0},
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        search(**options)
    assert caught.value.remedy


def test_the_fewest_rounds_suffice_for_a_comparison() -> None:
    study, _ = search(only=("half",), rounds=3)
    verdict = next(it.verdict for it in study.outcomes if it.lever == "half")
    assert study.status == "finished" and isinstance(verdict, (Kept, NoGain))
    assert verdict.comparison is not None and verdict.comparison.speed.rounds == 3


def test_a_misspelt_lever_is_guessed() -> None:
    with pytest.raises(UsageError, match="Did you mean 'half'"):
        search(only=("hlaf",))


def test_baseline_is_on_record() -> None:
    study, _ = search(only=("idle",))
    assert study.baseline is not None and isinstance(study.baseline.ending, Stopped)
