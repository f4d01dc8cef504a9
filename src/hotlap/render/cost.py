"""The costs of training in sentences: energy, money, and when a plan has paid off."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from hotlap.records import BreakEven, Costs, EnergyComparison, EnergySource, Estimate, Study
from hotlap.render import text
from hotlap.render.calls import of_calls

UNKNOWN_ENERGY = (
    "Energy is not known: neither an accelerator's driver nor the processor (RAPL) reported it while this was measured."
)
_COUNTERS: dict[EnergySource, str] = {
    "device-counter": "by the energy counter of the whole device, including other processes",
    "device-power": "by power samples of the whole device, including other processes",
    "processor-counter": "by the machine-wide counters of its processors, including other processes",
}
_LARGE = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
_ENERGY_UNITS = ((1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (0.0, "uJ"))


def cost_lines(costs: Costs) -> tuple[str, ...]:
    """Sentences on the price of a million samples and of a whole run, and on break-evens."""
    return (*_million(costs), *_run(costs), *_not_counted(costs), *_startup(costs), *_tuning(costs))


def cost_sentences(study: Study, costs: Costs | None) -> Iterator[str]:
    """Describe money and break-evens, and the energy of the kept plan."""
    if costs is not None:
        yield from (of_calls(study, it) for it in cost_lines(costs))
    if study.verification is not None and study.plan.settings and study.verification.speed.baseline_agrees:
        yield energy_line(study.verification.energy)


def energy_line(energy: EnergyComparison | None) -> str:
    """One sentence on the energy per sample before and after, or that it is unknown."""
    if energy is None:
        return UNKNOWN_ENERGY
    level = text.confidence(energy.confidence)
    ratio = energy.ratio
    return (
        f"A sample takes {joules(energy.baseline_joules_per_sample.value)} before and "
        f"{joules(energy.candidate_joules_per_sample.value)} after, which is {text.share(ratio.value)} of that "
        f"({level} {text.share(ratio.low)} to {text.share(ratio.high)}), {_COUNTERS[energy.source]}."
    )


def money(amount: float, currency: str) -> str:
    """An amount with its currency: ``0.00342 EUR``, ``12.30 EUR``, ``1,234``."""
    shown = f"{amount:,.2f}" if 1 <= amount < 1000 else _digits(amount)
    return f"{shown} {text.one_line(currency, limit=12)}".rstrip()


def joules(amount: float) -> str:
    """Energy in a suitable unit: ``18.3 mJ``, ``9.20 J``, ``1.20 kJ``."""
    factor, unit = next(it for it in _ENERGY_UNITS if amount >= it[0])
    return f"{_digits(amount / (factor or 1e-6))} {unit}"


def number(count: float) -> str:
    """A computed count with three significant digits: ``267``, ``12,300``, ``1.28 million``."""
    for factor, word in _LARGE:
        if count >= 0.9995 * factor:
            return f"{_digits(max(1.0, count / factor))} {word}"
    if count < 1000:
        return f"{math.ceil(count)}"
    step = 10 ** (math.floor(math.log10(count)) - 2)
    return f"{round(count / step) * step:,}"


def _million(costs: Costs) -> Iterator[str]:
    before, after, price = costs.million_before, costs.million_after, costs.price
    if before is None or price is None:
        return
    at = f"at {money(price.per_hour, price.currency)} an hour and in training steps alone"
    if before.low == before.high:
        at += "; before is the mean of one launch" if after is not None else ", by the mean of one launch"
    paid = _with_interval(before, costs, _amount)
    if after is not None:
        paid = f"{_amount(before)} before and {_with_interval(after, costs, _amount)} after"
    yield f"A million samples cost {paid}, {at}."


def _run(costs: Costs) -> Iterator[str]:
    run = costs.run
    if run is None:
        return
    name = f"A run of {number(run.samples)} samples takes"
    paid = f" and costs {_amount(run.price_before)}" if run.price_before is not None else ""
    before = f"{name} {_duration(run.seconds_before)}{paid}"
    if run.seconds_after is None:
        yield f"{before}, in training steps alone."
        return
    after = _with_interval(run.seconds_after, costs, _duration)
    if run.price_after is not None:
        after = f"{_duration(run.seconds_after)} and {_with_interval(run.price_after, costs, _amount)}"
    yield f"{before} before; {after} after, in training steps alone."


def _not_counted(costs: Costs) -> Iterator[str]:
    if costs.price is not None and not costs.counted:
        yield "What a sample or a whole run costs is unknown: the samples of a step are a guess."


def _startup(costs: Costs) -> Iterator[str]:
    """Describe a longer start (mainly compiling), and when it has paid off."""
    it = costs.startup
    if it is None:
        return
    extra = it.spent_seconds
    if extra.low <= 0:
        most = f", {text.duration(extra.high)} more at most" if extra.high > 0 else ""
        yield f"Starting was not measurably slower with the plan{most} ({text.confidence(costs.confidence)})."
        return
    longer = _with_interval(extra, costs, _duration)
    yield f"Starting takes {longer} longer with the plan{_earned_back(it, costs)}."


def _tuning(costs: Costs) -> Iterator[str]:
    it = costs.tuning
    if it is None or it.spent_seconds.value <= 0:
        return
    price = costs.price
    paid = f" ({money(costs.tuning_price, price.currency)})" if price and costs.tuning_price is not None else ""
    yield f"This study took {text.clock(it.spent_seconds.value)}{paid}{_earned_back(it, costs)}."


def _earned_back(it: BreakEven, costs: Costs) -> str:
    if it.samples is None:
        return "; whether it is ever earned back is unknown, because the gain may be zero"
    if it.steps is not None and not costs.counted:
        return f", earned back after {_with_interval(it.steps, costs, _count)} steps of the unmodified script"
    if it.steps is None:
        return f", earned back after {_with_interval(it.samples, costs, _count)} samples"
    steps = _with_interval(it.steps, costs, _count)
    return f", earned back after {steps} steps of the unmodified script, which are {number(it.samples.value)} samples"


def _with_interval(of: Estimate, costs: Costs, show: Callable[[Estimate], str]) -> str:
    """``0.86 EUR (95 % interval 0.84 EUR to 0.88 EUR)``; or a number without an interval."""
    if of.low == of.high:
        return show(of)
    low, high = (Estimate(value=end, low=end, high=end, unit=of.unit) for end in (of.low, of.high))
    return f"{show(of)} ({text.confidence(costs.confidence)} {show(low)} to {show(high)})"


def _amount(of: Estimate) -> str:
    return money(of.value, of.unit)


def _duration(of: Estimate) -> str:
    return text.duration(of.value)


def _count(of: Estimate) -> str:
    return number(of.value)


def _digits(amount: float) -> str:
    """Three significant digits, at most six decimals, and a separator for thousands."""
    if amount <= 0:
        return "0"
    decimals = min(6, max(0, 2 - math.floor(math.log10(amount))))
    return f"{amount:,.{decimals}f}"
