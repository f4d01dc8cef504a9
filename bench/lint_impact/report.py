"""What was measured of each rule, as Markdown and as the sentence on the rule's page."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.report import measured_again, table

MEBIBYTE = 2**20
CLEARLY_MORE = 1.1


class Impact(msgspec.Struct, frozen=True, kw_only=True):
    """The script without a rule's pattern against the script with it. ``speedup`` above 1 means that the pattern costs
    time; ``trouble`` is why there is no figure."""

    code: str
    name: str
    about: str
    speedup: float = 0.0
    low: float = 0.0
    high: float = 0.0
    confidence: float = 0.0
    replicates: int = 0
    rounds: int = 0
    slow_peak_bytes: int = 0
    fast_peak_bytes: int = 0
    trouble: str = ""


def sentence(impact: Impact, machine: str) -> str:
    """What a rule's page says of it."""
    interval = f"{100 * impact.confidence:g} % interval {impact.low:.2f} to {impact.high:.2f}"
    slow, fast = impact.slow_peak_bytes, impact.fast_peak_bytes
    memory = f" and needs {_mebibytes(fast)} instead of {_mebibytes(slow)}" if slow > CLEARLY_MORE * fast else ""
    return (
        f"Without it a script made to show it trains {impact.speedup:.2f}x as fast ({interval}){memory}, "
        f"on {machine.partition(', ')[2]} (docs/benchmarks/lint-impact.md)."
    )


def markdown(impacts: Sequence[Impact], left_out: Sequence[str], again: Sequence[str] = ()) -> str:
    """The table, and what it is not; ``again`` are the codes that were measured after the others."""
    rows = [_row(it) for it in impacts]
    header = ("rule", "script", "speedup without it", "interval", "replicates", "peak memory with", "without")
    return "\n".join(
        [
            "Each rule's pattern in a small script that was made to show it, against the same script fixed, by the "
            "rule's own fix where it has one. Both take turns in fresh launches, as in a lever's trial; intervals are "
            "over launches.",
            "",
            table(header, rows),
            "",
            "These are no typical gains: another model, batch or machine has another ratio. Which patterns cost "
            "anything at all, and where it is memory rather than time, is what the table shows.",
            "",
            f"Not measured, since most of them cost nothing without an accelerator, or make numbers wrong rather than "
            f"steps slow: {', '.join(left_out)}.",
            *measured_again(again),
        ]
    )


def _row(impact: Impact) -> tuple[str, ...]:
    rule = f"{impact.code} {impact.name}"
    if impact.trouble:
        return rule, impact.about, "", impact.trouble, "", "", ""
    return (
        rule,
        impact.about,
        f"{impact.speedup:.2f}x",
        f"{impact.low:.2f} to {impact.high:.2f} ({100 * impact.confidence:g} %)",
        f"{impact.replicates} of {impact.rounds} rounds",
        _mebibytes(impact.slow_peak_bytes),
        _mebibytes(impact.fast_peak_bytes),
    )


def _mebibytes(size: int) -> str:
    return f"{size / MEBIBYTE:.0f} MiB"
