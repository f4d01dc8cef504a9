"""The rules about numbers: on constructed runs, at their thresholds, and on random numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from hotlap.diagnose import Profile
from hotlap.diagnose.api import all_rules
from hotlap.diagnose.examples import GPU
from hotlap.diagnose.loss_scale import scale_history
from hotlap.diagnose.rules.gradient_spikes import FEWEST_STEPS, FIRST_STEPS, LARGE_RATIO, LEAST_RATIO
from hotlap.evidence import Numbers, RunEvidence
from hotlap.records import CallSite, Finding, Machine, OptimizerFacts, ScriptFacts, Steps

ADAM = OptimizerFacts(kind="Adam", parameters=10, learning_rate=1e-3)
BACKWARD = CallSite(role="backward", file="/home/someone/train.py", line=20)
STEP = CallSite(role="step", file="/home/someone/train.py", line=21)


def found(rule: str, profile: Profile) -> list[Finding]:
    return list(all_rules()[rule].check(profile))


def one(rule: str, profile: Profile) -> Finding:
    (finding,) = found(rule, profile)
    return finding


# ---------------------------------------------------------------------------------------------
# non-finite-loss
# ---------------------------------------------------------------------------------------------


def losses(*not_finite: int, steps: int = 50) -> Profile:
    return Profile(
        facts=ScriptFacts(sites=(STEP, BACKWARD)), steps=Steps(wall_seconds=(0.1,) * steps, not_finite=not_finite)
    )


@pytest.mark.parametrize(
    ("rows", "title", "afterwards"),
    [
        ((0,), "in 1 of 50 steps, first in step 1.", "Of the 49 steps after it 49 were finite again."),
        ((49,), "in 1 of 50 steps, first in step 50.", "It was the last observed step."),
        (tuple(range(30, 50)), "in 20 of 50 steps, first in step 31.", "Nor was it in any of the 19 steps after it"),
        ((7, 3, 3), "in 2 of 50 steps, first in step 4.", "Of the 46 steps after it 45 were finite again."),
    ],
)
def test_non_finite_losses_are_counted_and_the_first_is_named(
    rows: tuple[int, ...], title: str, afterwards: str
) -> None:
    finding = one("non-finite-loss", losses(*rows))
    assert finding.kind == "wrong-numbers"
    assert finding.title.endswith(title)
    assert finding.evidence[1].startswith(afterwards)
    assert finding.site == BACKWARD


def test_rows_outside_of_the_steps_are_ignored() -> None:
    assert not found("non-finite-loss", losses(50, -1))


def gradients(*not_finite: int, optimizers: Sequence[OptimizerFacts] = (ADAM,), grad_scaler: bool = False) -> Profile:
    numbers = Numbers(gradient_norms=(1.0,) * 50, gradient_not_finite=not_finite)
    return Profile(
        facts=ScriptFacts(optimizers=tuple(optimizers), grad_scaler=grad_scaler), evidence=RunEvidence(numbers=numbers)
    )


def test_gradients_count_if_no_scaler_skips_steps() -> None:
    assert "gradients were not finite in 1 of 50" in one("non-finite-loss", gradients(9)).title
    library = OptimizerFacts(kind="FP16Optimizer", parameters=10, learning_rate=1e-3, from_torch=False)
    assert not found("non-finite-loss", gradients(9, grad_scaler=True))
    assert not found("non-finite-loss", gradients(9, optimizers=(ADAM, library)))
    assert not found("non-finite-loss", gradients(9, optimizers=()))


def test_float16_without_a_scaler_is_mentioned() -> None:
    facts = ScriptFacts(autocast_dtype="float16")
    finding = one("non-finite-loss", Profile(facts=facts, steps=Steps(wall_seconds=(0.1,), not_finite=(0,))))
    assert "65504" in finding.evidence[-1]


# ---------------------------------------------------------------------------------------------
# gradient-spikes
# ---------------------------------------------------------------------------------------------


def norms(values: Sequence[float | None], *, optimizers: int = 1, clips: bool = False) -> Profile:
    return Profile(
        facts=ScriptFacts(optimizers=(ADAM,) * optimizers, clips_gradients=clips),
        evidence=RunEvidence(observed_steps=len(values), numbers=Numbers(gradient_norms=tuple(values))),
    )


def with_spikes(usual: Sequence[float], ratio: float, *rows: int) -> list[float]:
    return [it * ratio if row in rows else it for row, it in enumerate(usual)]


FLAT = (2.0,) * 100


@pytest.mark.parametrize(("ratio", "fires"), [(1.01 * LEAST_RATIO, True), (0.99 * LEAST_RATIO, False)])
def test_a_spike_is_at_least_fivefold(ratio: float, fires: bool) -> None:
    assert bool(found("gradient-spikes", norms(with_spikes(FLAT, ratio, 30, 50, 70)))) is fires


@pytest.mark.parametrize(
    ("ratio", "rows", "fires"),
    [
        (1.01 * LARGE_RATIO, (30,), False),
        (1.01 * LARGE_RATIO, (30, 50), True),
        (0.99 * LARGE_RATIO, (30, 50), False),
        (0.99 * LARGE_RATIO, (30, 50, 70), True),
        (50.0, range(10, 100, 10), True),
        (50.0, range(10, 100, 8), False),
    ],
)
def test_spikes_are_several_but_exceptional(ratio: float, rows: Sequence[int], fires: bool) -> None:
    assert bool(found("gradient-spikes", norms(with_spikes(FLAT, ratio, *rows)))) is fires


@pytest.mark.parametrize(("steps", "fires"), [(FEWEST_STEPS, True), (FEWEST_STEPS - 1, False)])
def test_gradient_spikes_need_steps_beyond_the_first(steps: int, fires: bool) -> None:
    values = with_spikes((2.0,) * (FIRST_STEPS + steps), 50.0, 20, 30, 40)
    assert bool(found("gradient-spikes", norms(values))) is fires


def test_gradient_spikes_report_number_size_and_steps() -> None:
    values = with_spikes(FLAT, 50.0, 30, 70)
    values[49] = 240.0
    finding = one("gradient-spikes", norms(values))
    assert finding.title == "The gradients jumped in 3 of 90 steps, up to 120-fold."
    assert finding.evidence[0] == "Steps 31, 50, 71; the largest norm was 240, in step 50."
    assert finding.kind == "risk" and "(2)" in finding.remedy


def test_steps_without_a_norm_are_still_numbered() -> None:
    values: list[float | None] = [*with_spikes(FLAT, 50.0, 30, 50, 70)]
    values[20:25] = [None] * 5
    assert "Steps 31, 51, 71" in one("gradient-spikes", norms(values)).evidence[0]


def test_a_slow_fall_over_orders_of_magnitude_is_not_a_spike() -> None:
    assert not found("gradient-spikes", norms([1000.0 * math.exp(-it / 12) for it in range(120)]))


def test_a_change_of_level_is_not_a_spike() -> None:
    assert not found("gradient-spikes", norms([2.0] * 60 + [40.0] * 60))


def test_clipped_gradients_and_several_optimizers_are_silent() -> None:
    values = with_spikes(FLAT, 50.0, 30, 50, 70)
    assert not found("gradient-spikes", norms(values, clips=True))
    assert not found("gradient-spikes", norms(values, optimizers=2))


@pytest.mark.parametrize("spread", [0.1, 0.3, 0.6, 1.0])
def test_random_norms_without_spikes_are_silent(spread: float) -> None:
    """Check two hundred runs whose norms are lognormal around a falling mean."""
    draw = random.Random(20)
    alarms = 0
    for _ in range(200):
        values = [3 * math.exp(-it / 300 + draw.gauss(0, spread)) for it in range(150)]
        alarms += bool(found("gradient-spikes", norms(values)))
    assert alarms == 0


# ---------------------------------------------------------------------------------------------
# scaler-skips
# ---------------------------------------------------------------------------------------------


def scaled(scales: Sequence[float], attempts: Sequence[int] = (), machine: Machine | None = None) -> Profile:
    return Profile(
        facts=ScriptFacts(device="cuda", grad_scaler=True),
        machine=machine or Machine(),
        evidence=RunEvidence(
            observed_steps=len(scales),
            numbers=Numbers(scaler_scales=tuple(scales), scaler_attempts=tuple(attempts)),
        ),
    )


def halved(*rows: int, steps: int = 150, first: float = 65536.0, machine: Machine | None = None) -> Profile:
    """Make a run whose scale is halved at these rows, each after one skipped step."""
    values = [first / 2 ** sum(it <= row for it in rows) for row in range(steps)]
    return scaled(values, [2 if row in rows else 1 for row in range(steps)], machine)


@pytest.mark.parametrize(("rows", "fires"), [((50, 90), False), ((50, 90, 130), True)])
def test_three_skips_are_several(rows: tuple[int, ...], fires: bool) -> None:
    assert bool(found("scaler-skips", halved(*rows, steps=140))) is fires


@pytest.mark.parametrize(("steps", "fires"), [(148, True), (149, False)])
def test_skips_must_cost_two_percent_of_the_steps(steps: int, fires: bool) -> None:
    """Three skips are steps besides those with rows; the first row may belong to the scale search."""
    assert 3 / (147 + 3) == 0.02
    assert bool(found("scaler-skips", halved(50, 90, 130, steps=steps))) is fires


def test_the_search_for_the_first_scale_does_not_count() -> None:
    searching = (1, 3, 4, 8, 15)
    assert not found("scaler-skips", halved(*searching))
    finding = one("scaler-skips", halved(*searching, 50, 70, 90, 110))
    assert finding.share.value == pytest.approx(4 / (150 - 16 + 4))
    assert finding.kind == "cost"
    assert finding.evidence[0].startswith("4 of 138 steps")


def test_a_scale_that_never_settles_is_reported() -> None:
    """Halve the scale in every fifth step for so long that any scale would have settled."""
    finding = one("scaler-skips", halved(*range(5, 60, 5), first=2.0**40))
    assert finding.share.value == pytest.approx(5 / (150 - 31 + 5))
    assert finding.title.startswith("The gradient scaler skips 4.0 %")


def test_a_scale_search_before_the_first_step_does_not_count() -> None:
    assert not found("scaler-skips", scaled([1024.0] * 100, [20, *([1] * 99)]))


def test_skips_after_the_scale_grew_are_counted() -> None:
    """Every third step the scale grows sixteenfold and returns in four skipped steps."""
    finding = one("scaler-skips", scaled([1024.0] * 99, [5, 1, 1] * 33))
    assert finding.share.value > 0.5
    assert "had a scale of 1024" in finding.evidence[1]


def test_skipped_steps_of_a_fused_optimizer_have_rows() -> None:
    """Without attempts, or with one per row, only a lower scale shows the skip."""
    values = [65536.0 / 2 ** sum(it <= row for it in (50, 70, 90)) for row in range(100)]
    for attempts in ([1] * 100, [], [1] * 7):
        finding = one("scaler-skips", scaled(values, attempts))
        assert finding.share.value == pytest.approx(3 / 99)


@pytest.mark.parametrize(("first", "halvings", "kind"), [(8.0, 3, "wrong-numbers"), (4.0, 2, ""), (16.0, 3, "")])
def test_a_scale_of_one_is_reported(first: float, halvings: int, kind: str) -> None:
    findings = found("scaler-skips", halved(*range(1, halvings + 1), first=first))
    assert [it.kind for it in findings] == ([kind] if kind else [])


@pytest.mark.parametrize(("halvings", "fires"), [(3, False), (4, True)])
def test_a_scale_that_sinks_is_reported_although_it_costs_little(halvings: int, fires: bool) -> None:
    rows = [100 * (1 + it) for it in range(halvings)]
    findings = found("scaler-skips", halved(*rows, steps=1000))
    assert [it.kind for it in findings] == (["wrong-numbers"] if fires else [])
    if fires:
        assert "sank from 65536 to 4096" in findings[0].title
        assert findings[0].evidence[0].startswith("4 of 1003 steps") and "float32" in findings[0].remedy


def test_a_scale_that_rises_again_does_not_sink() -> None:
    values = [65536.0 / 2 ** (row // 100) if row < 500 else 8192.0 for row in range(600)]
    assert not found("scaler-skips", scaled(values, [2 if row in (100, 200, 300, 400) else 1 for row in range(600)]))


def test_whether_the_scale_bounces_or_sinks_is_said() -> None:
    bouncing = [2.0 ** (16 - (row // 5) % 2) for row in range(150)]
    assert one("scaler-skips", scaled(bouncing)).evidence[-1].startswith("The scale bounces: since it was found it")
    sinking = one("scaler-skips", halved(50, 70, 90, 110))
    assert sinking.evidence[-1] == "The scale sinks: since it was found it fell 4 times and never rose."


def test_the_overflow_rate_leaves_out_the_search_for_the_scale() -> None:
    profile = halved(1, 2, 3, 50, 100)
    history = scale_history(profile.evidence.numbers)
    assert history is not None
    assert (history.found, sum(history.skipped), history.skipped_since) == (3, 5, 2)
    assert history.overflow_rate == pytest.approx(2 / (146 + 2))
    assert (history.rises, history.sank_by) == (0, 4.0)
    assert scale_history(Numbers()) is None


def test_a_growing_scale_is_silent() -> None:
    values = tuple(1024.0 * 2 ** (row // 20) for row in range(150))
    assert not found("scaler-skips", Profile(evidence=RunEvidence(numbers=Numbers(scaler_scales=values))))


@pytest.mark.parametrize(("skipped", "fires"), [(18, False), (19, True)])
def test_a_count_without_scales_ignores_the_first_sixteen(skipped: int, fires: bool) -> None:
    profile = Profile(steps=Steps(wall_seconds=(0.1,) * 140), scaler_skipped_steps=skipped)
    assert bool(found("scaler-skips", profile)) is fires


def test_bfloat16_is_advised_if_the_hardware_has_it() -> None:
    rows = (50, 70, 90, 110)
    assert "bfloat16" in one("scaler-skips", halved(*rows, machine=GPU)).remedy
    assert "bfloat16" not in one("scaler-skips", halved(*rows)).remedy
