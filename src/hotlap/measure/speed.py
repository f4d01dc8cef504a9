"""How much faster a candidate is than the baseline, and whether the data support that claim.

One *replicate* is a fresh launch of every arm (baseline A, its repeat A', candidate B), whose blocks take turns round
by round. Two launches of the same code differ by a few per cent however long they run, so each replicate gives one
number, D = mean over rounds of ln(y_B) - (ln(y_A) + ln(y_A')) / 2, and the interval is Student's over the replicates.
Rounds are never pooled as if they were launches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev, variance
from typing import NamedTuple, TypeAlias

import msgspec

from hotlap.measure import student, trimmed
from hotlap.records import Estimate, SpeedComparison, SpeedVerdict

ReplicateRounds: TypeAlias = Sequence[Sequence[float]]
"""For each replicate, wall seconds per sample in each of its rounds."""

DELTA = 0.01
HEADLINE_CONFIDENCE = 0.95
HEADLINE_REPLICATES = 5
EQUIVALENCE_CONFIDENCE = 0.90
POWER = 0.80

_CLOCK_ROUNDING = 1e-12
_MANY = 1e6
"""Degrees of freedom that are as good as infinite."""
_LARGEST_EXPONENT = 700.0


class InterimAnalysis(NamedTuple):
    """An interim analysis after so many replicates, and the share of false positives that it may spend."""

    replicates: int
    alpha: float


ANALYSES = (InterimAnalysis(3, 0.010), InterimAnalysis(5, 0.015), InterimAnalysis(8, 0.025))
"""Their alphas add up to 5 %, so all analyses together keep that rate (Bonferroni), however they are correlated."""


class VarianceParts(NamedTuple):
    """Variance of the log ratio between rounds of a launch, and between launches."""

    rounds: float
    launches: float


class _Interval(NamedTuple):
    """Student's, around a mean with that standard error and so many degrees of freedom."""

    mean: float
    standard_error: float
    degrees: int
    confidence: float

    def at(self, confidence: float) -> _Interval:
        """The same at another confidence."""
        return self._replace(confidence=confidence)

    @property
    def half_width(self) -> float:
        return student.quantile((1 + self.confidence) / 2, self.degrees) * self.standard_error

    @property
    def low(self) -> float:
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        return self.mean + self.half_width


def compare(
    baseline: ReplicateRounds,
    repeat: ReplicateRounds,
    candidate: ReplicateRounds,
    *,
    delta: float = DELTA,
    confidence: float = HEADLINE_CONFIDENCE,
    remarks: Sequence[str] = (),
) -> SpeedComparison:
    """Compare the candidate with the baseline and its ``repeat``, whose difference is the A/A gate.

    The reference is the mean of both, which varies less than one launch and owes nothing to the gate: of normal noise,
    the mean of two numbers is independent of their difference. It is uncertain by half the standard error of that
    difference, however little the candidate varies, so the interval is never narrower than that.

    ``delta`` is the smallest gain worth having, as a share; ``confidence`` that of the interval (for an interim
    analysis use :func:`compare_at_analysis`). A speedup above 1 means that the candidate is faster. If the interval of
    the repeat compared with the baseline excludes 1, the verdict is ``inconclusive``, with a remark.

    Raises :class:`ValueError` with fewer than two replicates, if the arms differ in replicates or rounds, and for times
    that are not finite and positive.
    """
    _check_share("delta", delta)
    _check_share("confidence", confidence)
    _check_arms(("baseline", baseline), ("repeat", repeat), ("candidate", candidate))
    own = _interval(_differences(baseline, repeat), confidence)
    effect = _interval(_differences_from_both(baseline, repeat, candidate), confidence)
    effect = effect._replace(standard_error=max(effect.standard_error, own.standard_error / 2))
    return _counted(_compared(effect, own, delta=delta, confidence=confidence, remarks=remarks), baseline)


def compare_single(
    reference: ReplicateRounds,
    candidate: ReplicateRounds,
    *,
    gate: tuple[ReplicateRounds, ReplicateRounds],
    delta: float = DELTA,
    confidence: float = HEADLINE_CONFIDENCE,
) -> SpeedComparison:
    """:func:`compare` with a reference that has no repeat; ``gate`` are the baseline and its repeat in the same rounds.

    Raises as :func:`compare` does.
    """
    _check_share("delta", delta)
    _check_share("confidence", confidence)
    baseline, repeat = gate
    arms = (("reference", reference), ("candidate", candidate), ("baseline", baseline), ("repeat", repeat))
    _check_arms(*arms)
    effect, own = (_interval(_differences(*it), confidence) for it in ((reference, candidate), gate))
    return _counted(_compared(effect, own, delta=delta, confidence=confidence, remarks=()), reference)


def _compared(
    effect: _Interval, own: _Interval, *, delta: float, confidence: float, remarks: Sequence[str]
) -> SpeedComparison:
    """The verdict on an effect, given that of the repeat; replicates and rounds are not counted."""
    agrees = own.low <= _CLOCK_ROUNDING and own.high >= -_CLOCK_ROUNDING
    equivalence = effect.at(EQUIVALENCE_CONFIDENCE)
    return SpeedComparison(
        speedup=_as_speedup(effect),
        verdict=_verdict(effect, equivalence, delta) if agrees else "inconclusive",
        replicates=0,
        rounds=0,
        confidence=confidence,
        noise_floor=_as_share(own.half_width),
        smallest_detectable=max(delta, _detectable_share(effect, confidence)),
        baseline_agrees=agrees,
        baseline_speedup=_as_speedup(own),
        remarks=(*remarks, *(() if agrees else (_disagreement(own, confidence),))),
    )


def compare_within_launch(
    baseline: Sequence[float],
    repeat: Sequence[float],
    candidate: Sequence[float],
    *,
    delta: float = DELTA,
    confidence: float = HEADLINE_CONFIDENCE,
    remarks: Sequence[str] = (),
) -> SpeedComparison:
    """:func:`compare` arms that took turns in one launch: wall seconds per sample in each of its rounds.

    The mean leaves out extreme rounds (:mod:`hotlap.measure.trimmed`). Its interval, Student's over
    rounds, holds for this process and does not cover the variation between launches: it may decide what is tried, but
    supports no claim. Raises as :func:`compare` does.
    """
    _check_share("delta", delta)
    _check_share("confidence", confidence)
    by_round = [[[seconds] for seconds in rounds] for rounds in (baseline, repeat, candidate)]
    _check_arms(*zip(("baseline", "repeat", "candidate"), by_round, strict=True))
    effect = _trimmed_interval(_log_ratios(baseline, candidate), confidence)
    own = _trimmed_interval(_log_ratios(baseline, repeat), confidence)
    rounds, extreme = len(baseline), len(baseline) - 1 - effect.degrees
    more = (f"Of {rounds} rounds {extreme} did not count: in some the machine's speed changed.",) if extreme else ()
    found = _compared(effect, own, delta=delta, confidence=confidence, remarks=(*remarks, *more))
    return msgspec.structs.replace(found, replicates=1, rounds=rounds, extreme_rounds=extreme)


def upper_end_within_launch(comparison: SpeedComparison, confidence: float) -> float:
    """The upper end of a comparison's interval within a launch, at another confidence."""
    degrees = _degrees_within_launch(comparison)
    reach = student.quantile((1 + confidence) / 2, degrees) * error_within_launch(comparison)
    return comparison.speedup.value * math.exp(reach)


def mean_within_launches(comparisons: Sequence[SpeedComparison], confidence: float | None = None) -> Estimate:
    """The geometric mean of speedups that were compared within a launch each, with an interval at that confidence, by
    default that of the first: Welch (1947), whose degrees of freedom follow from the error of each."""
    logs = [math.log(it.speedup.value) for it in comparisons]
    parts = [(error_within_launch(it) / len(comparisons)) ** 2 for it in comparisons]
    own_degrees = map(_degrees_within_launch, comparisons)
    weighted = math.fsum(part**2 / degrees for part, degrees in zip(parts, own_degrees, strict=True))
    total = math.fsum(parts)
    degrees = total**2 / weighted if weighted > 0 else math.inf
    wanted = comparisons[0].confidence if confidence is None else confidence
    reach = student.quantile((1 + wanted) / 2, min(round(degrees, 3), _MANY)) * math.sqrt(total)
    low, value, high = (math.exp(it) for it in (fmean(logs) - reach, fmean(logs), fmean(logs) + reach))
    return Estimate(value=value, low=low, high=high, unit="x")


def error_within_launch(comparison: SpeedComparison) -> float:
    """The standard error of the logarithm of a speedup within a launch."""
    reach = math.log(comparison.speedup.high) - math.log(comparison.speedup.value)
    return reach / student.quantile((1 + comparison.confidence) / 2, _degrees_within_launch(comparison))


def _degrees_within_launch(comparison: SpeedComparison) -> int:
    """The degrees of freedom of its interval."""
    return comparison.rounds - 1 - comparison.extreme_rounds


def repeat_of(reference: Sequence[float], baseline: Sequence[float], repeat: Sequence[float]) -> list[float]:
    """The times of a hypothetical repeat of the reference that differs from it as the baseline's repeat differed.

    Of many arms only the baseline has a repeat; its difference in each round serves as the gate for all comparisons.
    """
    return [own * again / first for own, first, again in zip(reference, baseline, repeat, strict=True)]


# ---------------------------------------------------------------------------------------------
# Interim analyses
# ---------------------------------------------------------------------------------------------


def alpha_at(replicates: int) -> float:
    """The share of false positives that the analysis of so many replicates may spend; in between, the last one's.

    Raises :class:`ValueError` before the first analysis.
    """
    reached = [analysis.alpha for analysis in ANALYSES if analysis.replicates <= replicates]
    if not reached:
        raise ValueError(
            f"The first interim analysis is at {ANALYSES[0].replicates} replicates; there are {replicates}."
        )
    return reached[-1]


def compare_at_analysis(
    baseline: ReplicateRounds,
    repeat: ReplicateRounds,
    candidate: ReplicateRounds,
    *,
    delta: float = DELTA,
    remarks: Sequence[str] = (),
) -> SpeedComparison:
    """:func:`compare` with the confidence of the analysis of so many replicates."""
    confidence = 1 - alpha_at(len(baseline))
    return compare(baseline, repeat, candidate, delta=delta, confidence=confidence, remarks=remarks)


def decided(comparison: SpeedComparison, replicates: int, *, delta: float = DELTA) -> bool:
    """Whether a study may stop here: at the last analysis, at a verdict, or for futility.

    Futility means that the whole interval is below the gain worth having. Nothing is decided between analyses, nor
    while the baseline differs from its repeat.

    Raises :class:`ValueError` for a comparison with less confidence than its analysis requires: stopping on it would
    exceed the promised rate of false positives.
    """
    if all(analysis.replicates != replicates for analysis in ANALYSES):
        return replicates > ANALYSES[-1].replicates
    if comparison.confidence < 1 - alpha_at(replicates) - 1e-9:
        needed = 1 - alpha_at(replicates)
        raise ValueError(
            f"An analysis of {replicates} replicates needs a confidence of {needed}; use compare_at_analysis()."
        )
    if replicates == ANALYSES[-1].replicates:
        return True
    if not comparison.baseline_agrees:
        return False
    return comparison.verdict != "inconclusive" or comparison.speedup.high < 1 + delta


# ---------------------------------------------------------------------------------------------
# Several comparisons in one family
# ---------------------------------------------------------------------------------------------


def p_value(comparison: SpeedComparison) -> float:
    """The two-sided p-value of "no effect at all", recovered from the interval of a comparison."""
    return p_value_of(comparison.speedup, replicates=comparison.replicates, confidence=comparison.confidence)


def p_value_of(ratio: Estimate, *, replicates: int, confidence: float) -> float:
    """The same for any ratio whose interval is Student's over the logarithms of so many replicates."""
    low, high = math.log(ratio.low), math.log(ratio.high)
    degrees = replicates - 1
    standard_error = (high - low) / 2 / student.quantile((1 + confidence) / 2, degrees)
    effect = abs(math.log(ratio.value))
    if standard_error < _CLOCK_ROUNDING:
        return 1.0 if effect <= _CLOCK_ROUNDING else 0.0
    return min(1.0, 2 * student.survival(effect / standard_error, degrees))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjust each p-value for its family: those at or below alpha may be claimed together.

    Holm (1979), *A simple sequentially rejective multiple test procedure*. Raises :class:`ValueError` for a value
    outside 0 to 1.
    """
    wrong = [p for p in p_values if not 0 <= p <= 1]
    if wrong:
        raise ValueError(f"A p-value lies between 0 and 1; {wrong[0]!r} does not.")
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return tuple(adjusted)


def hold_to_family(comparisons: Sequence[SpeedComparison], *, alpha: float) -> tuple[SpeedComparison, ...]:
    """Make comparisons of one family inconclusive that do not survive Holm's procedure at ``alpha``.

    Use the alpha of the interim analysis (:func:`alpha_at`), or 0.05 for comparisons that were analysed once.
    """
    adjusted = holm([p_value(it) for it in comparisons])
    return tuple(
        _withdrawn(it, p, alpha) if it.verdict in ("faster", "slower") and p > alpha else it
        for it, p in zip(comparisons, adjusted, strict=True)
    )


# ---------------------------------------------------------------------------------------------
# How many rounds, and when warm-up ends
# ---------------------------------------------------------------------------------------------


def variance_parts(first: ReplicateRounds, second: ReplicateRounds) -> VarianceParts:
    """Split the noise of a log ratio into rounds and launches, by a one-way analysis of variance of two arms.

    Raises :class:`ValueError` as :func:`compare` does, and for replicates of a single round.
    """
    _check_arms(("first arm", first), ("second arm", second))
    if any(len(rounds) < 2 for rounds in first):
        raise ValueError("A replicate with a single round shows no variance between rounds.")
    ratios = [_log_ratios(one, other) for one, other in zip(first, second, strict=True)]
    rounds = fmean(variance(it) for it in ratios)
    of_means = variance([fmean(it) for it in ratios])
    return VarianceParts(rounds, max(0.0, of_means - rounds * fmean(1 / len(it) for it in ratios)))


def round_count(
    *, launch_seconds: float, round_seconds: float, parts: VarianceParts, fewest: int = 8, most: int = 40
) -> int:
    """The number of rounds per replicate that gives the narrowest interval for its time.

    More rounds spread the cost of a launch, but average away only the noise between rounds. Raises :class:`ValueError`
    for times or variances that are negative or not finite, and for a round that takes no time.
    """
    numbers = (launch_seconds, round_seconds, *parts)
    if not all(math.isfinite(it) and it >= 0 for it in numbers) or round_seconds == 0:
        raise ValueError(f"Times and variances must be finite and not negative; got {numbers}.")
    if parts.launches == 0:
        return fewest if parts.rounds == 0 else most
    best = math.sqrt(launch_seconds / round_seconds * parts.rounds / parts.launches)
    return round(max(fewest, min(most, best)))


def warmed_up(block_seconds_per_sample: Sequence[float]) -> bool:
    """Whether warm-up is over: the fastest of the last three blocks is at most 2 % faster than the fastest of up to
    three before them.

    The fastest counts since disturbances only add time. Two signs of a compilation extend the warm-up: each of the last
    three blocks takes 1.5 times as long as those before, or the last one three times as long as the other two.
    Raises :class:`ValueError` for times that are not finite and positive.
    """
    _check_times("warm-up blocks", block_seconds_per_sample)
    before, recent = block_seconds_per_sample[-6:-3], block_seconds_per_sample[-3:]
    if not before:
        return False
    return 0.98 * min(before) <= min(recent) <= 1.5 * min(before) and recent[-1] <= 3 * min(recent)


def fewest_warm_up_steps(block_steps: int) -> int:
    """The fewest steps of a block of warm-up, where blocks that count have so many: a quarter. Slow steps make long
    blocks, and what is slow at first is that for some steps, however long they take."""
    return max(1, block_steps // 4)


# ---------------------------------------------------------------------------------------------
# Parts
# ---------------------------------------------------------------------------------------------


def _counted(found: SpeedComparison, arm: ReplicateRounds) -> SpeedComparison:
    """The same, saying how many replicates and rounds each arm had."""
    return msgspec.structs.replace(found, replicates=len(arm), rounds=min(map(len, arm)))


def _log_ratios(baseline: Sequence[float], candidate: Sequence[float]) -> list[float]:
    return [math.log(other) - math.log(one) for one, other in zip(baseline, candidate, strict=True)]


def _differences(baseline: ReplicateRounds, candidate: ReplicateRounds) -> list[float]:
    return [fmean(_log_ratios(one, other)) for one, other in zip(baseline, candidate, strict=True)]


def _differences_from_both(
    baseline: ReplicateRounds, repeat: ReplicateRounds, candidate: ReplicateRounds
) -> list[float]:
    """The candidate's differences from the mean of the baseline and its repeat."""
    pairs = zip(_differences(baseline, candidate), _differences(repeat, candidate), strict=True)
    return [fmean(it) for it in pairs]


def _interval(differences: Sequence[float], confidence: float) -> _Interval:
    standard_error = stdev(differences) / math.sqrt(len(differences))
    return _Interval(fmean(differences), standard_error, len(differences) - 1, confidence)


def _trimmed_interval(differences: Sequence[float], confidence: float) -> _Interval:
    return _Interval(*trimmed.mean(differences), confidence)


def _verdict(effect: _Interval, equivalence: _Interval, delta: float) -> SpeedVerdict:
    margin = math.log1p(delta)
    if effect.high < 0 and effect.mean <= -margin:
        return "faster"
    if effect.low > 0 and effect.mean >= margin:
        return "slower"
    if -margin < equivalence.low and equivalence.high < margin:
        return "no-effect"
    return "inconclusive"


def _detectable_share(effect: _Interval, confidence: float) -> float:
    """The smallest effect that is detected with a probability of :data:`POWER`."""
    reach = student.quantile((1 + confidence) / 2, effect.degrees) + student.quantile(POWER, effect.degrees)
    return _as_share(reach * effect.standard_error)


def _as_speedup(log_time: _Interval) -> Estimate:
    return Estimate(value=_exp(-log_time.mean), low=_exp(-log_time.high), high=_exp(-log_time.low), unit="x")


def _as_share(log_width: float) -> float:
    return _exp(log_width) - 1


def _exp(exponent: float) -> float:
    return math.exp(max(-_LARGEST_EXPONENT, min(_LARGEST_EXPONENT, exponent)))


def _disagreement(own: _Interval, confidence: float) -> str:
    return (
        f"The baseline measured against itself came out {_exp(-own.mean):.3f} times as fast, and its "
        f"{100 * confidence:g} % interval does not contain 1: the machine was disturbed, so no claim is made."
    )


def _withdrawn(comparison: SpeedComparison, p: float, alpha: float) -> SpeedComparison:
    remark = f"Not claimed: among the comparisons made together its adjusted p-value is {p:.3g}, above {alpha:g}."
    return msgspec.structs.replace(comparison, verdict="inconclusive", remarks=(*comparison.remarks, remark))


def _check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1; it is {value!r}.")


def _check_arms(*arms: tuple[str, ReplicateRounds]) -> None:
    first_name, first = arms[0]
    if len(first) < 2:
        raise ValueError(f"An interval needs at least 2 replicates; the {first_name} has {len(first)}.")
    for name, replicates in arms:
        if len(replicates) != len(first):
            raise ValueError(f"The {name} has {len(replicates)} replicates, the {first_name} {len(first)}.")
        for number, (rounds, expected) in enumerate(zip(replicates, first, strict=True), start=1):
            if len(rounds) != len(expected):
                raise ValueError(
                    f"In replicate {number} the {name} has {len(rounds)} rounds, the {first_name} {len(expected)}."
                )
            if not rounds:
                raise ValueError(f"Replicate {number} of the {name} has no rounds: an arm ended early.")
            _check_times(f"replicate {number} of the {name}", rounds)


def _check_times(name: str, seconds: Sequence[float]) -> None:
    for it in seconds:
        if not (math.isfinite(it) and it > 0):
            raise ValueError(f"Times must be finite and positive; {name} holds {it!r}.")
