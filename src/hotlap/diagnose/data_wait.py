"""How much of the step waits for data, and which loaders it waits for. Not a rule itself."""

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
"""How far the ceiling of the model alone may mislead: it rests on one set of launches, and such sets differ by that."""

_SHAPES_OF_A_FIXED_INPUT = 4


def waiting(profile: Profile) -> Estimate:
    """The share of the step that would vanish if batches cost nothing.

    That is the data wait, and no more than what the model alone, fed with one batch from memory, saves against the
    step: a step of ``w`` seconds that takes ``m`` without its loader can lose ``1 - m / w``. The ceiling is left aside
    where inputs change their size from batch to batch, since it was measured with the size of the first.
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


def sampler_lines(profile: Profile) -> list[SampledLine]:
    """The samples of the training thread in which a loader asked its sampler for indices."""
    return [it for it in sampled_in(profile, "data_wait") if it.sampler]


def choosing(profile: Profile) -> Estimate:
    """The share of the step in which samplers choose the samples of batches, which no worker does for the training
    process; with an interval for the chance of sampling. Never more than :func:`waiting`."""
    lines = sampler_lines(profile)
    share, wait = sampled_share(profile, seconds_of(lines), sum(it.samples for it in lines)), waiting(profile)
    return between(min(share.value, wait.value), min(share.low, wait.low), min(share.high, wait.high))


def ceiling(profile: Profile, name: str) -> Ceiling | None:
    """The measured ceiling of that name, if it was measured."""
    return next((it for it in profile.ceilings if it.name == name), None)


def step_seconds_per_sample(profile: Profile) -> float:
    """What the untouched script takes for each sample; 0 where there is no account."""
    return profile.account.wall / max(profile.account.samples_per_step, 1.0)


def computing_seconds_per_sample(profile: Profile) -> float:
    """What the step takes for each sample besides waiting for data."""
    return step_seconds_per_sample(profile) - profile.account.seconds_in("data_wait") / max(
        profile.account.samples_per_step, 1.0
    )


def training_loaders(profile: Profile) -> tuple[LoaderFacts, ...]:
    """The loaders that fed training steps: those that a backward followed, and of them those whose data set the
    profiled run saw in training. Where neither is known, all of them."""
    seen = {use.dataset for use in profile.evidence.loaders}
    loaders = _each_once(profile.facts.training_loaders)
    return tuple(it for it in loaders if it.dataset in seen) or loaders


def distinct_loaders(profile: Profile) -> tuple[LoaderFacts, ...]:
    """The script's loaders, each once: many scripts make the same one again in every epoch."""
    return _each_once(profile.facts.loaders)


def distinct_datasets(profile: Profile) -> tuple[DatasetProfile, ...]:
    """The data sets that were looked into, each kind once: a script may make the same one again in every epoch."""
    return tuple({it.dataset: it for it in profile.evidence.datasets}.values())


def working_rates(profile: Profile) -> tuple[LoaderRate, ...]:
    """The settings with which the loader alone was timed, those that failed left out."""
    return tuple(it for it in profile.loader_rates if not it.error and it.seconds_per_sample > 0)


def workers_of(rate: LoaderRate) -> int:
    """With how many workers the loader alone was timed."""
    return int(dict(rate.setting.values).get("num_workers", 0))


def best_rate(rates: Iterable[LoaderRate]) -> LoaderRate | None:
    """The fewest workers that come within 2 % of the fastest of these."""
    timed = list(rates)
    fastest = min((it.seconds_per_sample for it in timed), default=0.0)
    near = [it for it in timed if it.seconds_per_sample <= fastest * CLOSE_TO_BEST]
    return min(near, key=lambda it: (workers_of(it), it.seconds_per_sample), default=None)


def own_rate(profile: Profile, loader: LoaderFacts) -> LoaderRate | None:
    """The rate of the loader alone as the script has it."""
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
    """Whether a model's inputs differ in more than the number of samples: sequences of many lengths, say. A model may
    take a few inputs of different sizes, which are the same in every batch."""
    for model in profile.facts.models:
        beyond_samples = {shape[1:] for shape in model.input_shapes if len(shape) > 1}
        by_dimensions = Counter(len(shape) for shape in beyond_samples)
        if any(count > _SHAPES_OF_A_FIXED_INPUT for count in by_dimensions.values()):
            return True
    return False
