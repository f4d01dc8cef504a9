"""How much of the step waits for data, and for which loaders. Not a rule itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hotlap.diagnose.profile import Profile
from hotlap.diagnose.sampled import sampled_in, seconds_of
from hotlap.diagnose.shares import between, phase_share, sampled_share
from hotlap.evidence import DatasetProfile, SampledLine
from hotlap.levers.data.loader import CLOSE_TO_BEST, USUAL_PREFETCH
from hotlap.records import Ceiling, Estimate, LoaderFacts, LoaderRate

CEILING_NOISE = 0.03
"""The error of the model-alone ceiling: it comes from a single replicate, and replicates differ by this much."""

_SHAPES_OF_A_FIXED_INPUT = 4


def waiting(profile: Profile) -> Estimate:
    """Return the share of the step that would vanish if batches cost nothing.

    That is the data wait, but at most what the model alone, fed with one batch from memory, saves relative to the step:
    a step of ``w`` seconds that takes ``m`` without its loader can lose ``1 - m / w``. This ceiling is not applied if
    the size of inputs changes from batch to batch, since it was measured with the size of the first batch.
    """
    wait = phase_share(profile, "data_wait")
    alone = ceiling(profile, "model-alone")
    if alone is None or not alone.bound_speedup or _inputs_vary(profile):
        return wait
    speedup = alone.bound_speedup
    return between(
        min(wait.value, 1 - 1 / speedup),
        min(wait.low, 1 - (1 + CEILING_NOISE) / speedup),
        min(wait.high, 1 - 1 / (speedup * (1 + CEILING_NOISE))),
    )


def taken_from_computing(profile: Profile) -> Estimate | None:
    """Return the share of the step by which its other work is slower than without a loader; None if not measured.

    A step of ``w`` seconds that waits ``d`` for data and takes ``m`` without its loader loses ``1 - d / w - m / w``
    while it computes: on a CPU the loader's workers then use what the training needs. Not measured where the account
    itself is the ceiling (there are no workers), or where the size of inputs changes from batch to batch.
    """
    alone = ceiling(profile, "model-alone")
    if alone is None or not alone.bound_speedup or alone.bound_interval is None or _inputs_vary(profile):
        return None
    wait = phase_share(profile, "data_wait")
    low = min(alone.bound_interval[0], alone.bound_speedup / (1 + CEILING_NOISE))
    high = max(alone.bound_interval[1], alone.bound_speedup * (1 + CEILING_NOISE))
    return between(1 - wait.value - 1 / alone.bound_speedup, 1 - wait.high - 1 / low, 1 - wait.low - 1 / high)


def sampler_lines(profile: Profile) -> list[SampledLine]:
    """Return the training thread's samples in which a loader requested indices from its sampler."""
    return [it for it in sampled_in(profile, "data_wait") if it.sampler]


def choosing(profile: Profile) -> Estimate:
    """Return the share of the step in which samplers choose the samples of batches.

    Workers do not take this over from the training process. The interval covers the error of sampling; the share is at
    most :func:`waiting`.
    """
    lines = sampler_lines(profile)
    share, wait = sampled_share(profile, seconds_of(lines), sum(it.samples for it in lines)), waiting(profile)
    return between(min(share.value, wait.value), min(share.low, wait.low), min(share.high, wait.high))


def ceiling(profile: Profile, name: str) -> Ceiling | None:
    """Return the measured ceiling of that name, or None."""
    return next((it for it in profile.ceilings if it.name == name), None)


def step_seconds_per_sample(profile: Profile) -> float:
    """Return the unmodified script's seconds per sample; 0 without an account."""
    return profile.account.wall / max(profile.account.samples_per_step, 1.0)


def computing_seconds_per_sample(profile: Profile) -> float:
    """Return the step's seconds per sample other than waiting for data."""
    return step_seconds_per_sample(profile) - profile.account.seconds_in("data_wait") / max(
        profile.account.samples_per_step, 1.0
    )


def training_loaders(profile: Profile) -> tuple[LoaderFacts, ...]:
    """Return the loaders that fed training steps.

    Those are the ones followed by a backward, preferably with a data set that the profiled run saw in training. All
    loaders are returned if neither is known.
    """
    seen = {use.dataset for use in profile.evidence.loaders}
    loaders = _each_once(profile.facts.training_loaders)
    return tuple(it for it in loaders if it.dataset in seen) or loaders


def distinct_loaders(profile: Profile) -> tuple[LoaderFacts, ...]:
    """Return the script's distinct loaders: many scripts create the same one in every epoch."""
    return _each_once(profile.facts.loaders)


def distinct_datasets(profile: Profile) -> tuple[DatasetProfile, ...]:
    """Return the inspected data sets, one of each kind: a script may recreate one in every epoch."""
    return tuple({it.dataset: it for it in profile.evidence.datasets}.values())


def working_rates(profile: Profile) -> tuple[LoaderRate, ...]:
    """Return the settings with which the loader alone was timed, except those that failed."""
    return tuple(it for it in profile.loader_rates if not it.error and it.seconds_per_sample > 0)


def workers_of(rate: LoaderRate) -> int:
    """Return the number of workers with which the loader alone was timed."""
    return int(dict(rate.setting.values).get("num_workers", 0))


def best_rate(rates: Iterable[LoaderRate]) -> LoaderRate | None:
    """Return the fewest workers that are within 2 % of the fastest of these."""
    timed = list(rates)
    fastest = min((it.seconds_per_sample for it in timed), default=0.0)
    near = [it for it in timed if it.seconds_per_sample <= fastest * CLOSE_TO_BEST]
    return min(near, key=lambda it: (workers_of(it), it.seconds_per_sample), default=None)


def own_rate(profile: Profile, loader: LoaderFacts) -> LoaderRate | None:
    """Return the rate of the loader alone, with the script's own settings."""
    prefetch = (loader.prefetch_factor or USUAL_PREFETCH) if loader.workers else 0
    alike = [
        it
        for it in working_rates(profile)
        if workers_of(it) == loader.workers and int(dict(it.setting.values).get("prefetch_factor", 0)) == prefetch
    ]
    pinned_alike = [it for it in alike if bool(dict(it.setting.values).get("pin_memory", False)) == loader.pin_memory]
    return next(iter(pinned_alike or alike), None)


def _each_once(loaders: tuple[LoaderFacts, ...]) -> tuple[LoaderFacts, ...]:
    alike = {(it.dataset, it.batch_size, it.workers, it.prefetch_factor, it.site): it for it in loaders}
    return tuple(alike.values())


def _inputs_vary(profile: Profile) -> bool:
    """Whether a model's inputs differ in more than the number of samples.

    Sequences of many lengths do. Inputs of a few sizes that are the same in every batch do not.
    """
    for model in profile.facts.models:
        beyond_samples = {shape[1:] for shape in model.input_shapes if len(shape) > 1}
        by_dimensions = Counter(len(shape) for shape in beyond_samples)
        if any(count > _SHAPES_OF_A_FIXED_INPUT for count in by_dimensions.values()):
            return True
    return False
