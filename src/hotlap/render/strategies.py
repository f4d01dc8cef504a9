"""Strategies for several ranks in words and rows: predicted before their trials, and measured in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hotlap.objective import inverse
from hotlap.records import Comparison, Setting, StrategyChoice, StrategyForecast, Study
from hotlap.render import text
from hotlap.render.scaling import STRATEGY_NAMES

HEADINGS = ("strategy", ">predicted", ">error", ">memory", ">measured", ">its memory")


class _Measured(NamedTuple):
    """The step over that of the script's own strategy, and the peak; empty where it was not measured."""

    ratio: str = ""
    peak: str = ""


def rows(study: Study, choice: StrategyChoice) -> Iterator[tuple[str, ...]]:
    """The script's own strategy, then the others as they were tried."""
    own = _name(choice.strategy, choice.reshards)
    peak = text.size(choice.peak_bytes) if choice.peak_bytes else ""
    yield f"{own} (the script's)", "", "", peak, text.duration(choice.step_seconds), peak
    for it in choice.forecasts:
        measured = _measured(study, it)
        yield (
            _name(it.strategy, it.reshards),
            text.ratio(it.ratio),
            "not validated" if it.error is None else text.share(it.error),
            text.size(it.peak_bytes) if it.peak_bytes else "",
            measured.ratio or ("" if it.order else "not tried"),
            measured.peak,
        )


def reasons(choice: StrategyChoice) -> Iterator[str]:
    """Why strategies were not tried."""
    for it in choice.forecasts:
        if it.reason:
            yield f"{_name(it.strategy, it.reshards)}: {text.one_line(it.reason)}"


def remarks(choice: StrategyChoice) -> Iterator[str]:
    """Where the figures come from, and how far to trust them."""
    yield (
        "Steps are multiples of the script's own step, and memory is that of one rank. Predictions were made "
        f"before any trial, from the step's trace and collectives between {choice.ranks} processes of this machine."
    )
    if choice.exposed_seconds > 0:
        yield (
            f"Communication alone takes {text.duration(choice.exposed_seconds)} of the script's own step, by the "
            "same model."
        )
    if choice.validated:
        yield f"Errors are the largest of earlier predictions, measured on {text.one_line(choice.validated)}."
    else:
        yield "No prediction of this kind was compared with real runs: none was used to leave a strategy out."
    yield "Without an interval a measured step is that of one replicate."


def _name(strategy: str, reshards: bool | None) -> str:
    name = {str(key): it for key, it in STRATEGY_NAMES.items()}[strategy]
    return f"{name}, weights kept" if reshards is False else name


def _measured(study: Study, forecast: StrategyForecast) -> _Measured:
    """A trial's comparison where there is one, else the first measurement."""
    found = _comparison(study, forecast.setting)
    if found is not None:
        slower = inverse(found.speed.speedup)
        peak = found.candidate_peak_bytes // max(1, _ranks(study, found))
        interval = f"{text.ratio(slower.value)} ({text.interval(slower)})"
        return _Measured(interval, text.size(peak) if peak else "")
    if forecast.first_ratio is None:
        return _Measured()
    peak = forecast.first_peak_bytes
    return _Measured(text.ratio(forecast.first_ratio), text.size(peak) if peak else "")


def _comparison(study: Study, setting: Setting) -> Comparison | None:
    """That of the trial in which this setting alone was compared with the unmodified script."""
    found = (getattr(it.verdict, "comparison", None) for it in study.outcomes if it.setting == setting)
    known = [it for it in (*found, study.verification) if isinstance(it, Comparison)]
    return next((it for it in known if not it.baseline.settings and it.candidate.settings == (setting,)), None)


def _ranks(study: Study, found: Comparison) -> int:
    """Peaks of the host are those of all ranks together."""
    run = study.baseline
    on_device = run is not None and run.device_peak_bytes > 0
    return 1 if on_device or study.strategies is None else study.strategies.ranks
