"""What training costs before and after a plan, and when the time spent on the study is recovered.

This is arithmetic on a study. The time per sample before is taken as measured, and the time after follows from it by
the speedup. So the interval of a cost after, or of a break-even, is that of the speedup (and of the seconds spent); the
speed of the machine on that day affects both sides alike and is not part of it.
"""

from __future__ import annotations

import msgspec

from hotlap.gain import claimed_speedup
from hotlap.records import BreakEven, Comparison, Completed, Costs, Estimate, Price, Study, WholeRun

_MILLION = 1e6
_SECONDS_AN_HOUR = 3600.0
_USUAL_CONFIDENCE = 0.95


def costs(study: Study, *, price: Price | None = None, samples: int | None = None) -> Costs | None:
    """The costs of a study's script; None if the time per sample is unknown.

    ``samples`` is the number of samples of a whole training run. Without it they are counted if the script was observed
    until its own end; otherwise there is no figure for a run.
    """
    comparison = claimed_speedup(study)
    before = _seconds_per_sample(study, comparison)
    if before is None or study.account_before is None:
        return None
    counted = not study.account_before.samples_are_guessed
    whole = _whole_run(samples or samples_of_a_run(study), before, comparison, price) if counted else None
    found = Costs(
        confidence=comparison.speed.confidence if comparison is not None else _USUAL_CONFIDENCE,
        samples_per_step=study.account_before.samples_of_all,
        counted=counted,
        seconds_per_sample_before=before,
        seconds_per_sample_after=divided(before.value, comparison.speed.speedup) if comparison is not None else None,
        price=price,
        million_before=_priced(before, price, _MILLION) if counted else None,
        run=whole,
        tuning_price=study.spent_seconds * price.per_hour / _SECONDS_AN_HOUR if price is not None else None,
    )
    return found if comparison is None else _with_gain(found, comparison, study.spent_seconds)


def samples_of_a_run(study: Study) -> int | None:
    """The samples of a whole run, if the script was observed until it ended successfully."""
    run = study.baseline
    if run is None or run.ending != Completed() or not run.steps.samples:
        return None
    return sum(run.steps.samples) * max(1, run.facts.processes) or None


def samples_of_epochs(study: Study, epochs: int) -> int | None:
    """The samples of so many epochs of the only training loader, over all processes.

    A last batch counts as full. None if the length of an epoch is unknown or several loaders feed the script.
    """
    facts = study.baseline.facts if study.baseline is not None else None
    if facts is None or len(facts.loaders) != 1:
        return None
    loader = facts.loaders[0]
    if not loader.length or not loader.batch_size:
        return None
    return epochs * loader.length * loader.batch_size * max(1, facts.processes)


def divided(seconds: float, speedup: Estimate) -> Estimate:
    """The seconds that remain of so many after a speedup."""
    return Estimate(value=seconds / speedup.value, low=seconds / speedup.high, high=seconds / speedup.low, unit="s")


def saved(seconds: float, speedup: Estimate) -> Estimate:
    """The seconds that a speedup saves of so many; the lower end is negative if there may be no speedup."""
    after = divided(seconds, speedup)
    return Estimate(value=seconds - after.value, low=seconds - after.high, high=seconds - after.low, unit="s")


def break_even(spent_seconds: Estimate, saved_seconds: Estimate, samples_per_step: float) -> BreakEven:
    """The samples and steps after which the savings per sample equal the seconds spent.

    The interval is conservative: most spent with least saved, and least spent with most saved. There is no figure if
    nothing may be saved; if nothing may have been spent, the lower end is zero.
    """
    if saved_seconds.low <= 0:
        return BreakEven(spent_seconds=spent_seconds)
    samples = Estimate(
        value=max(0.0, spent_seconds.value) / saved_seconds.value,
        low=max(0.0, spent_seconds.low) / saved_seconds.high,
        high=max(0.0, spent_seconds.high) / saved_seconds.low,
        unit="samples",
    )
    steps = _scaled(samples, 1 / samples_per_step, "steps") if samples_per_step > 0 else None
    return BreakEven(spent_seconds=spent_seconds, samples=samples, steps=steps)


def _with_gain(found: Costs, comparison: Comparison, spent_seconds: float) -> Costs:
    """The costs before and after a gain."""
    saving = saved(found.seconds_per_sample_before.value, comparison.speed.speedup)
    extra = comparison.extra_startup_seconds
    spent = Estimate(value=spent_seconds, low=spent_seconds, high=spent_seconds, unit="s")
    return msgspec.structs.replace(
        found,
        million_after=_priced(found.seconds_per_sample_after, found.price, _MILLION) if found.counted else None,
        startup=break_even(extra, saving, found.samples_per_step) if extra is not None else None,
        tuning=break_even(spent, saving, found.samples_per_step),
    )


def _seconds_per_sample(study: Study, comparison: Comparison | None) -> Estimate | None:
    """From the replicates of the comparison if it has them, else the mean of one run, without an interval."""
    account = study.account_before
    if account is None or account.wall <= 0 or account.samples_of_all <= 0:
        return None
    if comparison is not None and comparison.baseline_seconds_per_sample is not None:
        return comparison.baseline_seconds_per_sample
    seconds = account.wall / account.samples_of_all
    return Estimate(value=seconds, low=seconds, high=seconds, unit="s")


def _whole_run(
    samples: int | None, before: Estimate, comparison: Comparison | None, price: Price | None
) -> WholeRun | None:
    if not samples:
        return None
    seconds_before = _scaled(before, samples, "s")
    seconds_after = None
    if comparison is not None:
        seconds_after = divided(seconds_before.value, comparison.speed.speedup)
        if comparison.extra_startup_seconds is not None:
            seconds_after = _added(seconds_after, comparison.extra_startup_seconds)
    return WholeRun(
        samples=samples,
        seconds_before=seconds_before,
        seconds_after=seconds_after,
        price_before=_priced(seconds_before, price),
        price_after=_priced(seconds_after, price),
    )


def _priced(seconds: Estimate | None, price: Price | None, times: float = 1.0) -> Estimate | None:
    """The cost of a time per sample over so many samples."""
    if seconds is None or price is None:
        return None
    return _scaled(seconds, times * price.per_hour / _SECONDS_AN_HOUR, price.currency)


def _scaled(of: Estimate, factor: float, unit: str) -> Estimate:
    return Estimate(value=of.value * factor, low=of.low * factor, high=of.high * factor, unit=unit)


def _added(one: Estimate, other: Estimate) -> Estimate:
    """The sum of two estimates; its interval is as wide as both together."""
    return Estimate(value=one.value + other.value, low=one.low + other.low, high=one.high + other.high, unit=one.unit)
