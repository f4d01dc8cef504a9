"""Sentences and names that are said both while trials are made and when they are reported."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

from hotlap.records import (
    EVALUATION_SECONDS,
    MEDIAN_CALL_SECONDS,
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    Completed,
    Crashed,
    Ending,
    Estimate,
    OutOfMemory,
    Stopped,
    TimedOut,
)

_METRICS: Final = MappingProxyType(
    {
        SECONDS_PER_SAMPLE: "time per sample",
        PEAK_BYTES: "peak memory",
        EVALUATION_SECONDS: "time of an evaluation",
        MEDIAN_CALL_SECONDS: "median time of a call",
        "resting_bytes": "memory at rest",
    }
)

_PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/|^.*/lib/python3\.\d+/(?=\w+(?:/\w+)*\.py$)")
"""The folders of installed packages, and that of the standard library."""


def from_package(file: str) -> str:
    """A library's file from its package on, ``torch/nn/functional.py``; any other file is returned unchanged."""
    return _PACKAGES.sub("", file)


def metric_words(name: str) -> str:
    """A metric as a sentence has it: ``peak memory``, ``device peak bytes``."""
    return _METRICS.get(name, name.replace("_", " "))


def number(value: float) -> str:
    """A figure with four significant digits, without an exponent: ``0.8512``, ``573.2``, ``10,910``."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def share(part: float) -> str:
    """A share in percent; small ones with one digit: ``36 %``, ``0.1 %``, ``0.02 %``, ``under 0.01 %``."""
    percent = part * 100
    if abs(percent) >= 10 or percent == 0:
        return f"{percent:.0f} %"
    if abs(percent) >= 0.1:
        return f"{percent:.1f}".removesuffix(".0") + " %"
    return f"{percent:.1g} %" if abs(percent) >= 0.01 else "under 0.01 %"


_WIDEST_SHOWN = 5.0
"""The largest ratio between the ends of an interval over few rounds or replicates that is shown."""


def ratio(value: float) -> str:
    """A speedup: ``1.83x``; from ten on with one digit."""
    return f"{value:.2f}x" if value < 10 else f"{value:.1f}x" if value < 100 else f"{value:.0f}x"


def interval(of: Estimate) -> str:
    """Both ends of an interval of a speedup: ``1.79 to 1.88``."""
    return f"{ratio(of.low)[:-1]} to {ratio(of.high)[:-1]}"


def ratio_in_interval(speedup: Estimate) -> str:
    """A speedup with both ends of its interval: ``1.83x (1.79 to 1.88)``."""
    return f"{ratio(speedup.value)} ({interval(speedup)})"


def is_worth_showing(of: Estimate) -> bool:
    """Whether an interval over few rounds or replicates says anything."""
    return of.high <= _WIDEST_SHOWN * of.low


def ratio_over_rounds(speedup: Estimate) -> str:
    """A speedup within one launch, with its interval unless that says nothing."""
    if is_worth_showing(speedup):
        return ratio_in_interval(speedup)
    return f"{ratio(speedup.value)} (no interval, since rounds differ too much)"


def launches_in(launches: int, seconds: float | None) -> str:
    """A number of launches and their time, if that is known: ``34 launches in 9 min``."""
    counted = "1 launch" if launches == 1 else f"{launches} launches"
    if seconds is None:
        return counted
    return f"{counted} in {about(seconds)}"


def about(seconds: float) -> str:
    """A time that is an estimate: ``45 s``, ``9 min``."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def ending_text(ending: Ending) -> str:
    """How a run ended, as one sentence. What a script said of its error is in it as it came."""
    match ending:
        case Crashed(denied_path=path, error=error) if path:
            return f"It failed in isolation: the kernel denied writing {path}. {error}".rstrip()
        case Crashed(error=error, exit_code=code):
            return f"It crashed: {error}" if error else f"It crashed with exit code {code}."
        case OutOfMemory(error=error):
            return f"It ran out of memory: {error}" if error else "It ran out of memory."
        case TimedOut(limit_seconds=limit, during=during):
            return f"It made no progress for {limit:.0f} s{f' during {during}' if during else ''}."
        case Completed(exit_code=code) if code != 0:
            return f"The script ended with exit code {code}."
        case Completed():
            return "The script ran to completion."
        case Stopped():
            return "It ran to the last requested step."


def replicates_words(done: int, at_once: int, planned: int) -> str:
    """Which replicates are being taken: ``replicate 4 of 5``, or ``replicates 1 to 3 of 5`` that started together."""
    first, last = min(done + 1, planned), min(done + at_once, planned)
    return f"replicate {first} of {planned}" if first >= last else f"replicates {first} to {last} of {planned}"
