"""Predicted and measured scaling in words and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hotlap.records import ProcessRate, ProcessScaling, ScaleLimit, ScalePoint, ScalePrediction, Strategy
from hotlap.render import text
from hotlap.scaling.predict import best_points

STRATEGY_NAMES: Final[dict[Strategy, str]] = {"ddp": "DDP", "zero-1": "ZeRO-1", "fsdp2": "FSDP2"}
_LIMITS: Final[dict[ScaleLimit, str]] = {
    "compute": "computing",
    "communication": "communication",
    "stragglers": "the slowest rank",
    "cores": "too few cores",
    "memory": "memory",
}
_WIDEST = 1.5
"""The largest ratio between the ends of an interval that answers the question."""

_LINES = 4
"""How many numbers of ranks the summary shows."""

NOT_VALIDATED = "Not validated: no prediction of this version was compared with a real run yet."
CURVE_HEADINGS = ("ranks", "strategy", ">step", ">efficiency", ">samples/s", ">memory", "limited by")
PROCESS_HEADINGS = (">processes", ">step", ">samples per second", ">efficiency", ">95 % interval", ">threads each")


def prediction_sentence(found: ScalePrediction) -> str:
    """The step at the largest size, under its best strategy."""
    best = best_points(found)[-1]
    where = f"On {_ranks(found, best.ranks)}" if best.ranks > 1 else "On one device"
    if best.fits is False:
        return f"{where} the model does not fit: {_name(best)} needs {text.size(best.peak_bytes)} per rank."
    return (
        f"{where} a step is predicted to take {text.duration(best.step_seconds)} with {_name(best)}, an efficiency of "
        f"{text.share(best.efficiency)}, limited by {_LIMITS[best.limit]}."
    )


def _ranks(found: ScalePrediction, ranks: int) -> str:
    what = "devices" if found.cluster.device or not found.cluster.cores else "processes"
    nodes = f" ({found.cluster.nodes} nodes)" if found.cluster.nodes > 1 else ""
    return f"{ranks} {what}{nodes}"


def _name(point: ScalePoint) -> str:
    return STRATEGY_NAMES[point.strategy]


def change_sentence(found: ScalePrediction) -> str:
    """From which size on which strategy is the best."""
    first, *later = found.changes or (None,)
    if first is None:
        return "No strategy fits at any size." if any(it.ranks > 1 for it in found.points) else ""
    parts = [f"{STRATEGY_NAMES[first.strategy]} from {first.ranks} ranks on"]
    parts += [f"{STRATEGY_NAMES[it.strategy]} from {it.ranks}" for it in later]
    return f"Best strategy: {', then '.join(parts)}."


def trust_sentences(found: ScalePrediction) -> Iterator[str]:
    """The error of earlier predictions, and what of this one is outside of them."""
    if not found.errors:
        yield NOT_VALIDATED
        return
    beyond = [it.ranks for it in found.points if it.ranks > 1 and not it.inside_validation]
    if beyond:
        where = "other devices" if found.cluster.device else f"{min(beyond)} and more ranks"
        yield f"Outside of what was validated: {where}."
    parts = [
        f"{STRATEGY_NAMES[it.strategy]} {text.share(it.mean_error)} (at most {text.share(it.largest_error)})"
        for it in found.errors
    ]
    most = max(it.most_ranks for it in found.errors)
    yield f"Mean error of earlier predictions: {', '.join(parts)}, with up to {most} processes."
    machine, date = found.errors[0].machine, found.errors[0].date
    if machine:
        yield f"These were measured on {machine}{f', {date}' if date else ''}."


def curve_lines(found: ScalePrediction) -> Iterator[str]:
    """Some numbers of ranks, the first and the last among them, a line each, under the best strategy."""
    points = best_points(found)
    last = len(points) - 1
    shown = {round(it * last / (_LINES - 1)) for it in range(_LINES)}
    for it in (point for number, point in enumerate(points) if number in shown):
        words = [
            f"{it.ranks}: {text.duration(it.step_seconds)}, {text.share(it.efficiency)}",
            f"{text.number(it.samples_per_second)} samples/s",
            _name(it) if it.ranks > 1 else "",
            text.size(it.peak_bytes) if it.peak_bytes else "",
            "does not fit" if it.fits is False else _LIMITS[it.limit],
        ]
        yield ", ".join(filter(None, words))


def curve_rows(found: ScalePrediction) -> tuple[tuple[str, ...], ...]:
    """A row for each number of ranks and strategy."""
    return tuple(
        (
            str(it.ranks),
            _name(it),
            text.duration(it.step_seconds),
            text.share(it.efficiency),
            text.number(it.samples_per_second),
            text.size(it.peak_bytes) if it.peak_bytes else "",
            "does not fit" if it.fits is False else _LIMITS[it.limit],
        )
        for it in found.points
        if it.ranks > 1 or it.strategy == "ddp"
    )


def price_and_failure_sentences(found: ScalePrediction) -> Iterator[str]:
    """The price of a million samples at the largest size, and how often to save a checkpoint there."""
    best = best_points(found)[-1]
    if best.cost_per_million_samples is not None:
        amount = f"{best.cost_per_million_samples:,.2f} {found.cluster.currency}".strip()
        yield f"A million samples cost {amount} on {best.ranks} devices."
    if best.checkpoint_every_seconds is not None:
        every = text.clock(best.checkpoint_every_seconds)
        yield f"Save a checkpoint about every {every} on {best.ranks} devices (Daly 2006)."


def process_sentence(found: ProcessScaling) -> str:
    """The efficiency at the largest number of processes."""
    last, first = found.rates[-1], found.rates[0]
    if last.efficiency is None:
        return ""
    return (
        f"{last.processes} processes reach {text.share(last.efficiency.value)} "
        f"({text.share(last.efficiency.low)} to {text.share(last.efficiency.high)}) of the samples per second and "
        f"process of {text.count(first.processes, 'process', 'processes')}."
    )


def process_remarks(found: ProcessScaling) -> Iterator[str]:
    """What was held fixed, and unequal threads."""
    yield "Weak scaling: each process keeps the script's own batch, so that a step has more samples in more processes."
    threads = {it.threads for it in found.rates if it.threads}
    if len(threads) > 1:
        said = ", ".join(f"{it.processes} with {it.threads}" for it in found.rates)
        yield f"Processes computed with different numbers of threads each ({said}); OMP_NUM_THREADS sets them."
    last = found.rates[-1].efficiency
    if last is not None and last.high > _WIDEST * last.low:
        yield "The interval is too wide to tell how it scales: measure again on an idle machine."
    wanted = max((it.processes * it.threads for it in found.rates), default=0)
    if found.cores and wanted > found.cores:
        yield f"{wanted} threads shared {text.count(found.cores, 'core')}, which lowers the efficiency."


def process_rows(rates: Sequence[ProcessRate]) -> tuple[tuple[str, ...], ...]:
    """A row for each number of processes."""
    return tuple(
        (
            str(it.processes),
            text.duration(it.step_seconds),
            text.number(it.samples_per_second),
            text.share(it.efficiency.value) if it.efficiency else text.share(1.0),
            f"{text.share(it.efficiency.low)} to {text.share(it.efficiency.high)}" if it.efficiency else "",
            str(it.threads or ""),
        )
        for it in rates
    )
