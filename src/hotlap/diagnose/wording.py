"""The wording of findings: figures with units, places, and the levers that address them. Not a rule itself.

Names from a script or a trace are truncated here; the code that displays a finding escapes them.
"""

from __future__ import annotations

from pathlib import PurePath

from hotlap.levers.api import all_levers
from hotlap.records import PHASES, CallSite, Estimate, PhaseAccount, Situation, StepPhase
from hotlap.wording import from_package

_LONGEST_NAME = 80
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def levers_for(rule: str, situation: Situation | None = None) -> tuple[str, ...]:
    """Return the names of the levers that address this rule.

    With a situation, only those that can be tried there.
    """
    answering = [lever for lever in all_levers().values() if rule in lever.addresses]
    return tuple(it.name for it in answering if situation is None or it.obstacle(situation) is None)


def percent(share: float) -> str:
    """Return ``36 %``, ``4.2 %``, ``0.3 %``: one decimal below ten percent."""
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f} %"


def share_of_step(share: Estimate) -> str:
    """Return ``36 % of the step``, with its interval if it has one."""
    text = f"{percent(share.value)} of the step"
    if share.low == share.high:
        return text
    return f"{text} (95 % interval {percent(share.low)} to {percent(share.high)})"


def time_in(account: PhaseAccount, phase: StepPhase, what: str = "") -> str:
    """Return ``data wait: 12 ms of a step of 40 ms``; ``what`` replaces the phase's title."""
    seconds = duration(account.seconds_in(phase))
    return f"{what or PHASES[phase].title}: {seconds} of a step of {duration(account.wall)}"


def duration(seconds: float) -> str:
    """Format seconds with three significant digits: ``812 us``, ``34.1 ms``, ``2.31 s``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 0.9995:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds * 1e6)} us" if seconds > 0 else "0 ms"


def per_second(seconds_each: float) -> str:
    """Format a rate per second from the seconds of one: ``0.25``, ``34.1``, ``10,870``."""
    return _three_digits(1 / seconds_each)


def size(count: float) -> str:
    """Format bytes in binary units: ``1.4 GiB``."""
    unit = 0
    while abs(count) >= 1000 and unit < len(_BINARY_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.{1 if unit and abs(count) < 9.95 else 0}f} {_BINARY_UNITS[unit]}"


def flop_rate(operations_per_second: float) -> str:
    """Format a rate as ``14.7 GFLOP/s`` or ``45.0 TFLOP/s``."""
    for unit, factor in (("PFLOP/s", 1e15), ("TFLOP/s", 1e12)):
        if operations_per_second >= 0.9995 * factor:
            return f"{_three_digits(operations_per_second / factor)} {unit}"
    return f"{_three_digits(operations_per_second / 1e9)} GFLOP/s"


def count(number: int, one: str, many: str = "") -> str:
    """Return ``1 worker`` or ``3 workers``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def name(text: str) -> str:
    """Return a name on one line, its middle removed if it is longer than 80 characters."""
    shown = " ".join(text[: 4 * _LONGEST_NAME].split())
    half = _LONGEST_NAME // 2 - 2
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[:half]}...{shown[-half:]}"


def place(site: CallSite | None) -> str:
    """Return ``train.py:31``, or ``an unknown line``; the finding's ``site`` has the whole path."""
    return line_of(site.file, site.line) if site and site.file else "an unknown line"


def line_of(file: str, line: int) -> str:
    """Return ``train.py:31``: the file without its folders; a library's from its package on."""
    of_library = from_package(file)
    return f"{name(PurePath(file).name if of_library == file else of_library)}:{line}"


def _three_digits(number: float) -> str:
    if number >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"
