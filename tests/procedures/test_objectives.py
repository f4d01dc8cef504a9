"""A search for something else than speed: what is kept, within which limits, and what is said."""

from __future__ import annotations

import json

import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript

from hotlap.errors import UsageError
from hotlap.experiment.options import Options
from hotlap.experiment.with_evaluation import TOO_LATE
from hotlap.gain import claimed, recorded_gain
from hotlap.objective import for_memory
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    Kept,
    Limit,
    NoGain,
    Objective,
    QualityLost,
    Seen,
    Skipped,
    Study,
)

CHECKPOINT, HALF, FAST, IDLE, LIAR = (setting(it) for it in ("checkpoint", "half", "fast", "idle", "liar"))
EFFECTS = {
    CHECKPOINT: Effect(peak=0.5, compute=1.1),
    HALF: Effect(peak=0.8, compute=0.6, loss=1.00001),
    FAST: Effect(optimizer=0.3),
    IDLE: Effect(),
    LIAR: Effect(peak=0.3, loss=1.02),
}
LEVERS = named(*(lever(it.lever, proof="rounding") for it in EFFECTS))


def search(objective: Objective, *, levers=LEVERS, effects=EFFECTS, seed: int = 0, **options: object) -> Study:
    return searched(objective, FakeScript(effects=effects), levers=levers, seed=seed, **options)[0]


def searched(
    objective: Objective, script: FakeScript, *, levers=LEVERS, seed: int = 0, **options: object
) -> tuple[Study, FakeExecutor]:
    executor = FakeExecutor(script, seed=seed)
    chosen = Options(objective=objective, **options)  # type: ignore[arg-type]
    return tune(WORKLOAD, chosen, executor, levers=levers, clock=executor.clock), executor


def verdicts(study: Study) -> dict[str, object]:
    return {it.lever: it.verdict for it in study.outcomes}


def test_what_halves_the_peak_at_slower_steps_is_kept_where_memory_counts() -> None:
    study = search(for_memory(1.3))
    assert {it.lever for it in study.plan.settings} == {"checkpoint", "half"}
    found = verdicts(study)
    assert isinstance(found["checkpoint"], Kept) and isinstance(found["liar"], QualityLost)
    assert isinstance(found["idle"], NoGain) and isinstance(found["fast"], NoGain)
    assert study.status == "finished" and study.verification is not None
    assert claimed(study) is study.verification
    (peak,) = study.verification.metrics
    assert peak.metric == "host_peak_bytes" and peak.verdict == "better" and peak.ratio.value == pytest.approx(0.4)


def awaiting(executor: FakeExecutor) -> list[bool]:
    """Of each replicate, whether its arms go on until the script has evaluated."""
    requests = [json.loads(line) for it in executor.requests[1:] for line in it.splitlines()]
    replicates = [it for it in requests if "arms" in it]
    return [all("await-evaluation" in json.dumps(arm["instruments"]) for arm in it["arms"]) for it in replicates]


def test_launches_include_an_evaluation_where_memory_counts_and_the_script_evaluates() -> None:
    study, executor = searched(for_memory(1.3), FakeScript(effects=EFFECTS, evaluates=True))
    assert awaiting(executor) and all(awaiting(executor))
    assert {it.lever for it in study.plan.settings} == {"checkpoint", "half"} and TOO_LATE not in study.warnings
    assert not any(awaiting(searched(for_memory(1.3), FakeScript(effects=EFFECTS))[1]))
    assert not any(awaiting(searched(Objective(), FakeScript(effects=EFFECTS, evaluates=True))[1]))


def test_an_evaluation_that_comes_too_late_for_the_budget_is_said() -> None:
    script = FakeScript(effects=EFFECTS, evaluates=True)
    study, executor = searched(for_memory(1.3), script, budget_seconds=45.0)
    assert TOO_LATE in study.warnings and not any(awaiting(executor))


def test_the_same_is_not_worth_having_where_speed_counts() -> None:
    study = search(Objective())
    found = verdicts(study)
    assert isinstance(found["checkpoint"], NoGain)
    assert {it.lever for it in study.plan.settings} == {"half", "fast"}


def test_a_plan_that_is_slower_promises_no_speed() -> None:
    study = search(for_memory(1.3), only=("checkpoint",))
    assert [it.lever for it in study.plan.settings] == ["checkpoint"]
    assert claimed(study) is not None and recorded_gain(study) is None


def test_a_limit_is_kept_or_the_lever_is_not() -> None:
    heavy = {CHECKPOINT: Effect(peak=0.5, compute=1.5)}
    study = search(for_memory(1.1), levers=named(lever("checkpoint")), effects=heavy)
    assert not study.plan.settings
    (verdict,) = verdicts(study).values()
    assert isinstance(verdict, NoGain)
    assert "1.1x of the script's is allowed" in verdict.reason and "time per sample" in verdict.reason.lower()


def replicates_of(executor: FakeExecutor, name: str) -> list[int]:
    """The number of arms of each replicate in which a lever took part."""
    requests = [json.loads(line) for it in executor.requests[1:] for line in it.splitlines()]
    return [len(it["arms"]) for it in requests if "arms" in it and name in json.dumps(it["arms"])]


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_first_look_shows_to_be_far_too_slow_has_no_trial(alone: bool) -> None:
    effects = {CHECKPOINT: Effect(peak=0.3, compute=4.0), HALF: Effect(peak=0.8)}
    levers = named(*map(lever, ("checkpoint",) if alone else ("checkpoint", "half")))
    study, executor = searched(for_memory(1.1), FakeScript(effects=effects), levers=levers)
    looks = len(replicates_of(executor, "checkpoint"))
    assert looks == (1 if alone else 2), "no trial; on top of the lever that was kept it is looked at again"
    refused = verdicts(study)["checkpoint"]
    assert isinstance(refused, NoGain) and refused.comparison is None
    assert "showed 3." in refused.reason and "the time per sample: 1.1x of the script's is allowed" in refused.reason
    assert {it.lever for it in study.plan.settings} == (set() if alone else {"half"})


@pytest.mark.parametrize("seed", range(4))
def test_what_may_be_within_the_limit_is_tried(seed: int) -> None:
    """1.10x where 1.1x is allowed: one replicate cannot tell."""
    effects = {CHECKPOINT: Effect(peak=0.3, compute=1.1 + 0.1 * 6 / 14)}
    script = FakeScript(effects=effects, round_noise=0.005)
    _, executor = searched(for_memory(1.1), script, levers=named(lever("checkpoint")), seed=seed)
    assert max(replicates_of(executor, "checkpoint")) == 3, "a trial has the baseline twice"


def test_a_setting_within_the_limit_takes_the_place_of_one_beyond_it() -> None:
    more, less = (setting("checkpoint", choice=it) for it in ("more", "less"))
    effects = {more: Effect(peak=0.3, compute=4.0), less: Effect(peak=0.6, compute=1.05)}
    study, _ = searched(for_memory(1.1), FakeScript(effects=effects), levers=named(lever("checkpoint", "more", "less")))
    assert study.plan.settings == (less,)


def test_a_first_look_that_shows_too_much_memory_is_enough() -> None:
    effects = {setting("greedy"): Effect(compute=0.5, peak=3.0)}
    within = Objective(limits=(Limit(metric=PEAK_BYTES, most=1.5),))
    script = FakeScript(effects=effects)
    study, executor = searched(within, script, levers=named(lever("greedy")))
    assert len(replicates_of(executor, "greedy")) == 1
    refused = verdicts(study)["greedy"]
    assert isinstance(refused, NoGain) and "3.00x the peak memory" in refused.reason


def test_a_limit_holds_for_all_levers_together() -> None:
    """Each of three stays within the limit, two of them together do not."""
    levers = ("first", "second", "third")
    effects = {setting(it): Effect(peak=0.6, compute=1.12) for it in levers}
    study = search(for_memory(1.15), levers=named(*map(lever, levers)), effects=effects)
    assert len(study.plan.settings) == 1
    assert study.verification is not None and study.verification.speed.speedup.value > 1 / 1.15
    refused = [it.reason for it in verdicts(study).values() if isinstance(it, NoGain)]
    assert len(refused) == 2
    assert all("1.15x of the script's is allowed, of which the levers before it leave 1.0" in it for it in refused)


def test_what_makes_up_for_a_slower_lever_earns_its_place() -> None:
    """A lever that saves a little memory and much time stays, although the peak is hardly worse without it."""
    effects = {CHECKPOINT: Effect(peak=0.5, compute=1.1), HALF: Effect(peak=0.95, compute=0.5)}
    study = search(for_memory(1.2), levers=named(lever("checkpoint"), lever("half")), effects=effects)
    assert {it.lever for it in study.plan.settings} == {"checkpoint", "half"}


def test_levers_that_are_not_meant_to_save_memory_are_passed_over() -> None:
    levers = named(lever("fast", improves=(SECONDS_PER_SAMPLE,)), lever("checkpoint"))
    found = verdicts(search(for_memory(), levers=levers))
    assert found["fast"] == Skipped(reason="It is not tried for the peak memory.")
    smaller = named(lever("checkpoint", improves=(PEAK_BYTES,)), lever("fast"))
    reason = "It is not tried for the time per sample. `--goal memory` tries it."
    assert verdicts(search(Objective(), levers=smaller))["checkpoint"] == Skipped(reason=reason)


def test_a_bound_of_speed_does_not_speak_against_saving_memory() -> None:
    found = verdicts(search(for_memory(), levers=named(lever("checkpoint", bound=1.0))))
    assert isinstance(found["checkpoint"], Kept)


def test_speed_within_a_limit_of_memory() -> None:
    """A lever that is faster and needs more memory than is allowed is not kept."""
    effects = {setting("greedy"): Effect(compute=0.5, peak=3.0), HALF: Effect(compute=0.7)}
    within = Objective(limits=(Limit(metric=PEAK_BYTES, most=1.5),))
    study = search(within, levers=named(lever("greedy"), lever("half")), effects=effects)
    assert [it.lever for it in study.plan.settings] == ["half"]
    refused = verdicts(study)["greedy"]
    assert isinstance(refused, NoGain) and "3.00x the peak memory" in refused.reason


def test_a_quick_screening_shows_its_memory() -> None:
    study = search(for_memory(), quick=True, budget_seconds=600.0)
    looked = verdicts(study)["checkpoint"]
    assert isinstance(looked, Seen) and looked.metric == PEAK_BYTES and looked.speedup == pytest.approx(2.0)


@pytest.mark.parametrize(
    "objective", [Objective(metric="beauty"), Objective(limits=(Limit(metric="beauty", most=1.0),))]
)
def test_a_metric_that_does_not_exist_is_named(objective: Objective) -> None:
    with pytest.raises(UsageError, match="'beauty' does not exist"):
        search(objective)


@pytest.mark.parametrize("most", [0.0, -1.0, float("nan"), float("inf"), 0.9])
def test_a_limit_that_makes_no_sense_is_refused(most: float) -> None:
    with pytest.raises(UsageError, match="The limit of seconds_per_sample"):
        search(for_memory(most))


def test_speed_without_limits_is_decided_as_ever() -> None:
    """The same answers, bit for bit, whether the objective is named or not."""
    one, other = search(Objective()), search(Objective(metric=SECONDS_PER_SAMPLE))
    assert one == other
