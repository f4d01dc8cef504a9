"""Paired replicates: intervals, verdicts, interim analyses, the family of levers, rounds and warm-up."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure import speed
from hotlap.measure.speed import ANALYSES, VarianceParts
from hotlap.records import SpeedComparison

Arm = list[list[float]]

seconds = st.floats(1e-5, 1e3)


@st.composite
def three_arms(draw: st.DrawFn) -> tuple[Arm, Arm, Arm]:
    replicates, rounds = draw(st.integers(2, 6)), draw(st.integers(1, 5))
    arm = st.lists(st.lists(seconds, min_size=rounds, max_size=rounds), min_size=replicates, max_size=replicates)
    return draw(arm), draw(arm), draw(arm)


def arms(
    source: random.Random,
    *,
    effect: float = 0.0,
    replicates: int = 5,
    rounds: int = 10,
    launch: float = 0.03,
    block: float = 0.02,
    own: float = 0.0,
) -> tuple[Arm, Arm, Arm]:
    """Replicates with launch and block noise; the candidate takes exp(effect) times as long, the repeat exp(own)
    times."""

    def arm(shift: float, drift: list[list[float]]) -> Arm:
        made = []
        for of_rounds in drift:
            level = shift + source.gauss(0, launch)
            made.append([math.exp(level + it + source.gauss(0, block)) for it in of_rounds])
        return made

    drift = [[source.gauss(0, 0.1) for _ in range(rounds)] for _ in range(replicates)]
    return arm(0.0, drift), arm(own, drift), arm(effect, drift)


def scaled(arm: Arm, factor: float) -> Arm:
    return [[it * factor for it in rounds] for rounds in arm]


def close(one: SpeedComparison, other: SpeedComparison) -> bool:
    ours, theirs = one.speedup, other.speedup
    return all(
        math.isclose(a, b, rel_tol=1e-6)
        for a, b in ((ours.value, theirs.value), (ours.low, theirs.low), (ours.high, theirs.high))
    )


# -- what must hold for any numbers ---------------------------------------------------------------


@given(three_arms(), st.floats(0.01, 100))
def test_the_unit_of_time_does_not_matter(three: tuple[Arm, Arm, Arm], factor: float) -> None:
    assert close(speed.compare(*three), speed.compare(*(scaled(arm, factor) for arm in three)))


@given(three_arms())
def test_exchanging_both_arms_inverts_the_speedup(three: tuple[Arm, Arm, Arm]) -> None:
    one, _, other = three
    forth, back = speed.compare(one, one, other).speedup, speed.compare(other, other, one).speedup
    assert forth.value == pytest.approx(1 / back.value, rel=1e-9)
    assert forth.low == pytest.approx(1 / back.high, rel=1e-6)
    opposite = {"faster": "slower", "slower": "faster"}
    verdict = speed.compare(one, one, other).verdict
    assert speed.compare(other, other, one).verdict == opposite.get(verdict, verdict)


@given(three_arms(), st.randoms(use_true_random=False))
def test_the_order_of_replicates_does_not_matter(three: tuple[Arm, Arm, Arm], shuffle: random.Random) -> None:
    order = list(range(len(three[0])))
    shuffle.shuffle(order)
    assert close(speed.compare(*three), speed.compare(*([arm[i] for i in order] for arm in three)))


@given(three_arms())
def test_more_confidence_is_a_wider_interval_around_the_same_value(three: tuple[Arm, Arm, Arm]) -> None:
    narrow, wide = speed.compare(*three, confidence=0.9), speed.compare(*three, confidence=0.99)
    assert wide.speedup.value == narrow.speedup.value
    assert wide.speedup.low <= narrow.speedup.low <= narrow.speedup.value <= narrow.speedup.high <= wide.speedup.high
    assert wide.noise_floor >= narrow.noise_floor


@given(three_arms())
def test_drift_that_hits_all_arms_alike_cancels(three: tuple[Arm, Arm, Arm]) -> None:
    drifted = [[[it * (1 + r) for r, it in enumerate(rounds)] for rounds in arm] for arm in three]
    assert close(speed.compare(*three), speed.compare(*drifted))


@given(st.integers(2, 8), st.integers(1, 30))
def test_more_rounds_of_the_same_do_not_narrow_the_interval(replicates: int, copies: int) -> None:
    """Rounds are not replicates: repeating them adds no certainty."""
    source = random.Random(replicates)
    one, again, other = arms(source, replicates=replicates, rounds=2)
    repeated = [[rounds * copies for rounds in arm] for arm in (one, again, other)]
    assert close(speed.compare(one, again, other), speed.compare(*repeated))


def test_the_interval_agrees_with_scipys_paired_t_test() -> None:
    one, again, other = arms(random.Random(3), effect=-0.1)
    got = speed.compare(one, again, other)
    d = differences_from_both(one, again, other)
    expected = scipy.stats.ttest_1samp(d, 0.0)
    low, high = expected.confidence_interval(0.95)
    assert got.speedup.value == pytest.approx(math.exp(-sum(d) / len(d)))
    assert (got.speedup.low, got.speedup.high) == pytest.approx((math.exp(-high), math.exp(-low)))
    assert speed.p_value(got) == pytest.approx(expected.pvalue)
    assert got.replicates == 5
    assert got.rounds == 10


def differences_from_both(one: Arm, again: Arm, other: Arm) -> list[float]:
    """One number for each replicate: the mean logarithm of a round's time over the mean of both baselines'."""
    return [
        sum(math.log(c / math.sqrt(a * b)) for a, b, c in zip(*rounds, strict=True)) / len(rounds[0])
        for rounds in zip(one, again, other, strict=True)
    ]


@given(three_arms())
def test_the_baseline_and_its_repeat_count_alike(three: tuple[Arm, Arm, Arm]) -> None:
    one, again, other = three
    assert close(speed.compare(one, again, other), speed.compare(again, one, other))


@given(three_arms())
def test_the_interval_is_never_narrower_than_the_mean_of_two_baselines_is_certain(
    three: tuple[Arm, Arm, Arm],
) -> None:
    got = speed.compare(*three)
    assert got.baseline_speedup is not None
    width, own_width = (math.log(it.high / it.low) for it in (got.speedup, got.baseline_speedup))
    assert width >= own_width / 2 * (1 - 1e-6) - 1e-9


def test_a_candidate_that_varies_by_chance_as_the_baselines_do_is_not_certain() -> None:
    """Launches in two states, of which each candidate happened to have the mean of its baselines'."""
    launches = [(1.0, 1.1), (1.1, 1.0), (1.0, 1.1), (1.1, 1.0), (1.0, 1.1)]
    one, again = ([[pair[it]] for pair in launches] for it in range(2))
    other = [[math.sqrt(a * b) / 1.02] for a, b in launches]
    assert statistics.stdev(differences_from_both(one, again, other)) == pytest.approx(0.0, abs=1e-12)
    got = speed.compare(one, again, other)
    assert got.speedup.value == pytest.approx(1.02)
    assert got.speedup.low < 1
    assert got.verdict == "inconclusive"


def test_both_baselines_find_what_one_does_not() -> None:
    """Of the same replicates more gains are found, and no more false alarms are raised, than with one baseline."""
    source, studies = random.Random(8), 400
    found = {}
    for effect in (-0.05, 0.0):
        drawn = [arms(source, effect=effect, rounds=4) for _ in range(studies)]
        both = [speed.compare(*it) for it in drawn]
        single = [speed.compare_single(one, other, gate=(one, again)) for one, again, other in drawn]
        found[effect] = [sum(it.verdict in ("faster", "slower") for it in studied) for studied in (both, single)]
    assert found[-0.05][0] > 1.15 * found[-0.05][1]
    assert found[0.0][0] <= min(found[0.0][1], 0.05 * studies)


def test_without_a_repeat_the_gate_is_that_of_the_baselines() -> None:
    one, again, other = arms(random.Random(3), effect=-0.1)
    got = speed.compare_single(one, other, gate=(again, one))
    d = [sum(math.log(b / a) for a, b in zip(x, y, strict=True)) / len(x) for x, y in zip(one, other, strict=True)]
    low, high = scipy.stats.ttest_1samp(d, 0.0).confidence_interval(0.95)
    assert (got.speedup.low, got.speedup.high) == pytest.approx((math.exp(-high), math.exp(-low)))
    assert got.baseline_speedup == speed.compare(again, one, other).baseline_speedup
    assert (got.replicates, got.rounds) == (5, 10)
    with pytest.raises(ValueError, match="repeat has 1 replicate"):
        speed.compare_single(one, other, gate=(one, again[:1]))


@pytest.mark.parametrize("replicates", [3, 5, 8])
def test_intervals_cover_the_truth_as_often_as_they_say(replicates: int) -> None:
    """Those with a repeat at least as often: they are never narrower than the repeat allows."""
    source = random.Random(replicates)
    studies, truth = 600, 1.07
    covered = covered_by_single = 0
    for _ in range(studies):
        one, again, other = arms(source, effect=-math.log(truth), replicates=replicates, rounds=4)
        got = speed.compare(one, again, other).speedup
        covered += got.low <= truth <= got.high
        single = speed.compare_single(one, other, gate=(one, again)).speedup
        covered_by_single += single.low <= truth <= single.high
    assert scipy.stats.binomtest(covered, studies, 0.95, alternative="less").pvalue > 0.001
    assert scipy.stats.binomtest(covered_by_single, studies, 0.95).pvalue > 0.001


# -- verdicts -------------------------------------------------------------------------------------

QUIET = {"launch": 0.001, "block": 0.001}


@pytest.mark.parametrize(
    ("effect", "noise", "verdict"),
    [
        (-0.10, QUIET, "faster"),
        (0.10, QUIET, "slower"),
        (0.0, QUIET, "no-effect"),
        (-0.005, QUIET, "no-effect"),
        (-0.05, {"launch": 0.2, "block": 0.1}, "inconclusive"),
    ],
)
def test_verdicts(effect: float, noise: dict[str, float], verdict: str) -> None:
    got = speed.compare(*arms(random.Random(1), effect=effect, **noise))
    assert got.baseline_agrees
    assert got.verdict == verdict


def test_a_sure_gain_below_delta_is_not_called_faster() -> None:
    three = arms(random.Random(1), effect=-0.02, **QUIET)
    assert speed.compare(*three, delta=0.01).verdict == "faster"
    assert speed.compare(*three, delta=0.05).verdict == "no-effect"


def test_a_baseline_that_differs_from_itself_forbids_any_claim() -> None:
    got = speed.compare(*arms(random.Random(1), effect=-0.5, own=0.05, **QUIET), remarks=("Others used 40 %.",))
    assert not got.baseline_agrees
    assert got.verdict == "inconclusive"
    assert got.remarks[0] == "Others used 40 %."
    assert "disturbed" in got.remarks[1]
    assert got.baseline_speedup is not None
    assert got.baseline_speedup.high < 1


def test_replicates_without_any_noise_decide() -> None:
    flat = [[1.0, 1.0]] * 3
    got = speed.compare(flat, flat, scaled(flat, 0.5))
    assert got.verdict == "faster"
    assert got.speedup.low == got.speedup.high == pytest.approx(2.0)
    assert got.noise_floor == 0
    assert speed.p_value(got) == 0
    assert speed.compare(flat, flat, flat).verdict == "no-effect"
    assert speed.p_value(speed.compare(flat, flat, flat)) == 1


def test_the_noise_floor_is_the_half_width_of_the_baseline_against_itself() -> None:
    got = speed.compare(*arms(random.Random(2)))
    assert got.baseline_speedup is not None
    half_width = math.log(got.baseline_speedup.high / got.baseline_speedup.low) / 2
    assert got.noise_floor == pytest.approx(math.exp(half_width) - 1)


def test_the_smallest_detectable_effect_is_mostly_detected() -> None:
    source = random.Random(5)
    typical = sorted(speed.compare(*arms(source)).smallest_detectable for _ in range(200))[100]
    found = sum(speed.compare(*arms(source, effect=-math.log1p(typical))).speedup.low > 1 for _ in range(300))
    assert 0.6 < found / 300 < 0.95


@pytest.mark.parametrize(
    ("one", "again", "other", "words"),
    [
        ([[1.0]], [[1.0]], [[1.0]], "at least 2 replicates"),
        ([], [], [], "at least 2 replicates"),
        ([[1.0]] * 2, [[1.0]] * 3, [[1.0]] * 2, "repeat has 3 replicates"),
        ([[1.0]] * 2, [[1.0]] * 2, [[1.0], [1.0, 2.0]], "replicate 2 the candidate has 2 rounds"),
        ([[1.0], []], [[1.0], []], [[1.0], []], "no rounds"),
        ([[1.0]] * 2, [[1.0]] * 2, [[1.0], [0.0]], "finite and positive"),
        ([[1.0]] * 2, [[1.0]] * 2, [[1.0], [-1.0]], "finite and positive"),
        ([[1.0]] * 2, [[1.0], [math.nan]], [[1.0]] * 2, "replicate 2 of the repeat holds nan"),
        ([[1.0], [math.inf]], [[1.0]] * 2, [[1.0]] * 2, "replicate 2 of the baseline holds inf"),
    ],
)
def test_bad_replicates_are_refused(one: Arm, again: Arm, other: Arm, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        speed.compare(one, again, other)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, math.nan])
def test_bad_shares_are_refused(share: float) -> None:
    flat = [[1.0]] * 2
    with pytest.raises(ValueError, match="delta"):
        speed.compare(flat, flat, flat, delta=share)
    with pytest.raises(ValueError, match="confidence"):
        speed.compare(flat, flat, flat, confidence=share)


# -- interim analyses ----------------------------------------------------------------------------------


def test_all_analyses_together_spend_five_per_cent() -> None:
    assert [it.replicates for it in ANALYSES] == [3, 5, 8]
    assert sum(it.alpha for it in ANALYSES) == pytest.approx(0.05)


@given(st.integers(3, 50))
def test_later_analyses_may_spend_no_less(replicates: int) -> None:
    assert speed.alpha_at(replicates) <= speed.alpha_at(replicates + 1) <= ANALYSES[-1].alpha


def test_there_is_no_analysis_before_the_first() -> None:
    with pytest.raises(ValueError, match="first interim analysis is at 3"):
        speed.alpha_at(2)


def test_an_analysis_uses_its_own_confidence() -> None:
    assert speed.compare_at_analysis(*arms(random.Random(1), replicates=3)).confidence == pytest.approx(0.99)
    assert speed.compare_at_analysis(*arms(random.Random(1), replicates=8)).confidence == pytest.approx(0.975)


def test_a_big_effect_is_decided_at_the_first_analysis() -> None:
    got = speed.compare_at_analysis(*arms(random.Random(1), effect=-0.5, replicates=3, launch=0.01))
    assert got.verdict == "faster"
    assert speed.decided(got, 3)


def test_a_hopeless_candidate_is_given_up_early() -> None:
    got = speed.compare_at_analysis(
        *arms(random.Random(1), effect=0.012, replicates=3, launch=0.0009, block=0.001), delta=0.05
    )
    assert speed.decided(got, 3, delta=0.05)


def test_an_open_question_is_decided_at_the_last_analysis_only() -> None:
    source = random.Random(1)
    for replicates, expected in ((3, False), (5, False), (8, True), (9, True)):
        got = speed.compare_at_analysis(*arms(source, effect=-0.03, replicates=replicates, launch=0.3))
        assert got.verdict == "inconclusive"
        assert speed.decided(got, replicates) is expected


def test_between_analyses_nothing_is_decided() -> None:
    got = speed.compare_at_analysis(*arms(random.Random(1), effect=-0.5, replicates=4, launch=0.01))
    assert got.verdict == "faster"
    assert not speed.decided(got, 4)


def test_a_disturbed_baseline_needs_more_replicates() -> None:
    got = speed.compare_at_analysis(*arms(random.Random(1), effect=0.5, own=0.5, replicates=3, launch=0.01))
    assert not got.baseline_agrees
    assert not speed.decided(got, 3)


def test_too_little_confidence_for_an_analysis_is_refused() -> None:
    got = speed.compare(*arms(random.Random(1), replicates=3), confidence=0.95)
    with pytest.raises(ValueError, match="compare_at_analysis"):
        speed.decided(got, 3)


# -- families -------------------------------------------------------------------------------------


def test_holm_by_hand() -> None:
    assert speed.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert speed.holm([]) == ()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_only_raises_and_keeps_the_order(values: Sequence[float]) -> None:
    adjusted = speed.holm(values)
    assert all(it <= got <= 1 for it, got in zip(values, adjusted, strict=True))
    ranked = sorted(zip(values, adjusted, strict=True))
    assert [got for _, got in ranked] == sorted(adjusted)


def test_holm_refuses_what_is_not_a_probability() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        speed.holm([0.5, 1.5])


def test_what_does_not_survive_its_family_is_withdrawn() -> None:
    source = random.Random(11)
    weak = next(
        it for it in (speed.compare(*arms(source, effect=-0.04)) for _ in range(100))
        if it.verdict == "faster" and 0.01 < speed.p_value(it) < 0.05
    )  # fmt: skip
    strong = speed.compare(*arms(source, effect=-0.8))
    held = speed.hold_to_family([weak, strong, strong, weak, weak, weak, weak], alpha=0.05)
    assert held[0].verdict == "inconclusive"
    assert "adjusted p-value" in held[0].remarks[-1]
    assert held[1] == strong
    assert speed.hold_to_family([weak], alpha=0.05) == (weak,)


# -- rounds and warm-up ---------------------------------------------------------------------------


def test_the_variance_is_taken_apart() -> None:
    one, _, other = arms(random.Random(4), replicates=400, rounds=10, launch=0.04, block=0.02)
    parts = speed.variance_parts(one, other)
    assert parts.rounds == pytest.approx(2 * 0.02**2, rel=0.1)
    assert parts.launches == pytest.approx(2 * 0.04**2, rel=0.2)


def test_launch_variance_is_never_negative() -> None:
    one, _, other = arms(random.Random(4), replicates=3, rounds=2, launch=0.0, block=0.5)
    assert speed.variance_parts(one, other).launches >= 0


def test_a_single_round_shows_no_variance() -> None:
    with pytest.raises(ValueError, match="single round"):
        speed.variance_parts([[1.0]] * 3, [[1.0]] * 3)


@pytest.mark.parametrize(
    ("launch_seconds", "rounds", "launches", "expected"),
    [
        (30.0, 4e-4, 4e-4, 10),
        (30.0, 4e-4, 4e-6, 40),
        (3.0, 1e-6, 4e-4, 8),
        (30.0, 4e-4, 0.0, 40),
        (30.0, 0.0, 0.0, 8),
        (30.0, 4e-4, 5e-324, 40),
    ],
)
def test_the_number_of_rounds(launch_seconds: float, rounds: float, launches: float, expected: int) -> None:
    got = speed.round_count(launch_seconds=launch_seconds, round_seconds=0.3, parts=VarianceParts(rounds, launches))
    assert got == expected


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_bad_costs_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite and not negative"):
        speed.round_count(launch_seconds=bad, round_seconds=1.0, parts=VarianceParts(1.0, 1.0))


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([], False),
        ([1.0, 1.0, 1.0], False),
        ([1.0, 1.0, 1.0, 1.0], True),
        ([9.0, 1.0, 1.0, 1.0], False),
        ([9.0, 1.0, 1.0, 1.0, 1.0], True),
        ([9.0, 3.0, 2.0, 1.5, 1.2, 1.1], False),
        ([1.0, 9.0, 9.0, 0.5], False),
        ([1.0, 9.0, 9.0, 9.0], False),
        ([1.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0], True),
        ([9.0, 1.0, 1.01, 0.99, 6.0], False),
        ([1.0, 1.2, 1.3, 1.3, 1.4], True),
    ],
)
def test_warm_up_ends_when_times_stop_falling(blocks: list[float], expected: bool) -> None:
    assert speed.warmed_up(blocks) is expected


@given(st.floats(0.5, 0.9), st.integers(4, 30))
def test_a_steady_fall_is_never_warm(factor: float, blocks: int) -> None:
    assert not speed.warmed_up([factor**number for number in range(blocks)])


@given(st.lists(st.floats(0.9, 1.1), min_size=4, max_size=30), st.floats(0.01, 100))
def test_warm_up_does_not_depend_on_the_unit(blocks: list[float], factor: float) -> None:
    on_the_edge = math.isclose(min(blocks[-3:]), 0.98 * min(blocks[-6:-3]), rel_tol=1e-9)
    if not on_the_edge:
        assert speed.warmed_up(blocks) is speed.warmed_up([it * factor for it in blocks])


@pytest.mark.parametrize(("disturbance", "most"), [(0.05, 10), (0.5, 16), (2.0, 30)])
def test_warm_up_ends_soon_on_a_disturbed_machine(disturbance: float, most: int) -> None:
    """After one slow block, with delays caused by other processes: nearly always within that many blocks."""
    needed = []
    for seed in range(200):
        source, blocks = random.Random(seed), [5.0]
        while not speed.warmed_up(blocks):
            blocks.append(1 + source.expovariate(1 / disturbance))
        needed.append(len(blocks))
    assert sorted(needed)[190] <= most


def test_warm_up_refuses_impossible_times() -> None:
    with pytest.raises(ValueError, match="warm-up blocks"):
        speed.warmed_up([1.0, math.nan])


@pytest.mark.parametrize("confidence", [0.6, 0.9])
def test_an_interval_within_a_launch_has_the_same_ends_at_another_confidence(confidence):
    source = random.Random(5)
    rows = [[math.exp(source.gauss(0.0, 0.02)) for _ in range(10)] for _ in range(3)]
    found = speed.compare_within_launch(*rows)
    narrow = speed.compare_within_launch(*rows, confidence=confidence)
    assert speed.upper_end_within_launch(found, confidence) == pytest.approx(narrow.speedup.high)
