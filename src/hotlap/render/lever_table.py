"""The levers of a study: gain, effect on results and memory, and why each was or was not kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from hotlap.gain import exceeds_bound, own_comparison
from hotlap.records import (
    EVALUATION_SECONDS,
    SECONDS_PER_SAMPLE,
    Comparison,
    CompileReport,
    Crashed,
    Estimate,
    Failed,
    GraphBreak,
    Kept,
    NoGain,
    NotVerified,
    Outcome,
    OutOfMemory,
    PhaseAccount,
    QualityLost,
    Seen,
    Skipped,
    TimedOut,
    Verdict,
)
from hotlap.render import text
from hotlap.render.blocks import Tone
from hotlap.render.layout import indented
from hotlap.render.quality import exact_words, quality_word
from hotlap.wording import ending_text

COLOURS: dict[Tone, str] = {"good": "green", "neutral": "default", "bad": "red"}
MARKS: dict[Tone, tuple[str, str]] = {"good": ("✓", "+"), "neutral": ("·", "-"), "bad": ("✗", "x")}
NO_DETAILS: Mapping[str, str] = MappingProxyType({})
NOT_PROVED = "own gain not proved"
_INDENT = 5
_GAP = 2
_BREAKS_SHOWN = 5
_FEWEST_GROUPED = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One displayed lever; ``below`` are the lines under it."""

    tone: Tone
    lever: str
    values: str
    speedup: str
    quality: str
    memory: str
    verdict: str
    reason: str
    below: tuple[str, ...] = field(default=())


def lever_table(
    outcomes: Sequence[Outcome], account: PhaseAccount | None = None, details: Mapping[str, str] = NO_DETAILS
) -> RenderableType:
    """All levers of a study: tried ones in the order of their trials, then the others.

    ``details`` has an additional line for some levers: why they were tried.
    """
    rows, skipped = tried_rows(outcomes, account, details), skipped_rows(outcomes)
    pieces: list[RenderableType] = []
    if rows:
        pieces.append(_Tried(rows))
        pieces += _beneath(footnote(outcomes), "dim italic")
    if skipped:
        pieces += [Text()] if rows else []
        pieces.append(_skipped_table(skipped))
    return Group(*pieces)


def tried_rows(
    outcomes: Sequence[Outcome], account: PhaseAccount | None = None, details: Mapping[str, str] = NO_DETAILS
) -> tuple[Row, ...]:
    """The tried levers, in the order of their trials."""
    tried = [it for it in outcomes if not isinstance(it.verdict, Skipped)]
    return tuple(row(it, _step_seconds(it, outcomes, account), details.get(it.lever, "")) for it in tried)


def own_gain(outcome: Outcome) -> str:
    """``1.23x (1.10 to 1.38)`` of a kept lever; not proved where there is no comparison, or one that shows no gain."""
    comparison, first = own_comparison(outcome), getattr(outcome.verdict, "first_ratio", None)
    if comparison is not None and comparison.speed.verdict == "faster":
        speedup = comparison.speed.speedup
        return f"{text.ratio(speedup.value)} ({text.interval(speedup)})"
    if comparison is None and first is not None:
        return f"{text.ratio(first)} seen once, not proved"
    return NOT_PROVED


def kept_words(outcomes: Sequence[Outcome]) -> str:
    """``2 of 5 tried``: what was not tried says nothing about how many levers gain."""
    tried = [it for it in outcomes if not isinstance(it.verdict, Skipped)]
    return f"{sum(isinstance(it.verdict, Kept) for it in tried)} of {len(tried)} tried" if tried else "none tried"


def skipped_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """The levers that were not tried, with reasons; those already in the script come first. A reason that many levers
    share is one row."""
    skipped = [(it.lever, it.verdict) for it in outcomes if isinstance(it.verdict, Skipped)]
    by_reason: dict[str, list[str]] = {}
    for lever, verdict in sorted(skipped, key=lambda it: not it[1].already):
        by_reason.setdefault(_why_skipped(verdict), []).append(text.one_line(lever))
    rows: list[tuple[str, str]] = []
    for why, levers in by_reason.items():
        if len(levers) < _FEWEST_GROUPED:
            rows += [(lever, why) for lever in levers]
        else:
            rows.append((text.count(len(levers), "lever"), f"{why.removesuffix('.')}: {', '.join(levers)}"))
    return rows


def row(outcome: Outcome, step_seconds: float | None = None, details: str = "") -> Row:
    """One tried lever as displayed. ``step_seconds`` is the step time without it, if known."""
    verdict = outcome.verdict
    comparison, judged = own_comparison(outcome), getattr(verdict, "comparison", None)
    tone, word = verdict_word(outcome)
    compiled = _compile_lines(outcome.compile, comparison, step_seconds) if outcome.compile else ()
    return Row(
        tone=tone,
        lever=text.one_line(outcome.lever),
        values=text.setting_values(outcome.setting) if outcome.setting else "",
        speedup=_speedup_cell(comparison, verdict),
        quality=quality_word(judged.quality) if judged else "",
        memory=_memory_cell(comparison, verdict),
        verdict=word,
        reason=_reason(outcome),
        below=(*((details,) if details else ()), *compiled),
    )


def verdict_word(outcome: Outcome) -> tuple[Tone, str]:
    """The outcome of a lever, in a word or two."""
    match outcome.verdict:
        case Kept():
            return "good", "kept"
        case NoGain(comparison=None):
            return "neutral", "no gain"
        case NoGain(metric=metric) if metric != SECONDS_PER_SAMPLE:
            return "neutral", "no gain"
        case NoGain(comparison=Comparison(speed=speed)):
            words = {"no-effect": "no effect", "slower": "slower", "inconclusive": "inconclusive"}
            return "neutral", words.get(speed.verdict, "no gain")
        case QualityLost():
            return "bad", "differs"
        case NotVerified():
            return "neutral", "not verified"
        case Failed(ending=OutOfMemory()):
            return "bad", "no memory"
        case Failed(ending=TimedOut()):
            return "bad", "timed out"
        case Failed(ending=Crashed()):
            return "bad", "crashed"
        case Failed():
            return "bad", "failed"
        case Seen() as look:
            return "neutral", "above its bound" if exceeds_bound(look) else "not proved"
        case Skipped(already=True):
            return "neutral", "in the script"
    return "neutral", "skipped"


def _speedup_cell(comparison: Comparison | None, verdict: Verdict) -> str:
    if isinstance(verdict, Seen):
        if verdict.metric == EVALUATION_SECONDS:
            return f"{text.ratio(verdict.speedup)}  evaluation"
        if verdict.metric != SECONDS_PER_SAMPLE:
            return ""
        if verdict.bound is not None and exceeds_bound(verdict):
            return f"{text.ratio(verdict.bound)}  at most"
        if verdict.within_launch is not None:
            return _over_rounds(verdict.within_launch)
        return f"{text.ratio(verdict.speedup)}  no interval"
    if comparison is None and isinstance(verdict, (QualityLost, NotVerified)) and verdict.speedup is not None:
        return f"{text.ratio(verdict.speedup)}  no interval"
    if comparison is None:
        return ""
    estimate = comparison.speed.speedup
    return _over_rounds(estimate) if comparison.within_launch else _with_interval(estimate)


def _over_rounds(estimate: Estimate) -> str:
    """A speedup within one launch, whose interval says nothing if it has few rounds that differ."""
    return _with_interval(estimate) if text.is_worth_showing(estimate) else f"{text.ratio(estimate.value)}  no interval"


def _with_interval(estimate: Estimate) -> str:
    return f"{text.ratio(estimate.value)}  {text.interval(estimate)}"


def _memory_cell(comparison: Comparison | None, verdict: Verdict) -> str:
    if isinstance(verdict, Seen) and verdict.metric == EVALUATION_SECONDS:
        return ""
    if isinstance(verdict, Seen) and verdict.metric != SECONDS_PER_SAMPLE:
        return f"{text.ratio(1 / verdict.speedup)}  no interval" if verdict.speedup > 0 else ""
    if comparison is None:
        return ""
    return text.change_of_size(comparison.baseline_peak_bytes, comparison.candidate_peak_bytes)


def _reason(outcome: Outcome) -> str:
    reason = getattr(outcome.verdict, "reason", "")
    if isinstance(outcome.verdict, Failed) and not reason:
        reason = ending_text(outcome.verdict.ending)
    return text.one_line(reason)


def _step_seconds(outcome: Outcome, outcomes: Sequence[Outcome], account: PhaseAccount | None) -> float | None:
    """The step time with the levers that were on before this one was tried."""
    comparison = getattr(outcome.verdict, "comparison", None)
    if comparison is None or account is None or account.wall <= 0:
        return None
    seconds = account.wall
    for it in outcomes:
        own = own_comparison(it) if isinstance(it.verdict, Kept) else None
        if own is not None and it.setting in comparison.baseline.settings:
            seconds /= own.speed.speedup.value
    return seconds


def _compile_lines(report: CompileReport, comparison: Comparison | None, step: float | None) -> Iterator[str]:
    graphs = text.count(report.graphs, "graph")
    yield f"Compiled for {text.duration(report.seconds)} into {graphs}{_pay_back(report, comparison, step)}."
    yield from _breaks("graph break", report.graph_breaks)
    yield from _breaks("recompiled", report.recompiles)
    yield from _breaks("stays eager", report.fallbacks)


def _pay_back(report: CompileReport, comparison: Comparison | None, step: float | None) -> str:
    if comparison is None or step is None or report.seconds <= 0 or comparison.speed.verdict != "faster":
        return ""
    saved = step * (1 - 1 / comparison.speed.speedup.value)
    return f"; pays back after about {report.seconds / saved:,.0f} steps" if saved > 0 else ""


def _breaks(what: str, breaks: Sequence[GraphBreak]) -> Iterator[str]:
    for it in breaks[:_BREAKS_SHOWN]:
        where = f" at {text.one_line(it.file)}:{it.line}" if it.file else ""
        times = f" ({it.count} times)" if it.count > 1 else ""
        yield f"{what}{where}{times}: {text.one_line(it.reason, limit=160)}"
    if len(breaks) > _BREAKS_SHOWN:
        yield f"and {len(breaks) - _BREAKS_SHOWN} more"


@dataclass(frozen=True, slots=True)
class _Tried:
    """The levers that were tried: a row of short cells each, and beneath it the words."""

    rows: tuple[Row, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = ("", "lever", "speedup  interval", "numbers", "memory", "verdict")
        widths = [max(cell_len(cell) for cell in column) for column in zip(names, *map(_cells, self.rows), strict=True)]
        narrow = _INDENT - _GAP + sum(widths) + _GAP * (len(widths) - 1) > options.max_width
        if not narrow:
            yield Text(" " * (_INDENT - _GAP)).append_text(_line(names, widths, ["dim"] * len(names)))
        for it in self.rows:
            marked = Text("  ").append(MARKS[it.tone][options.ascii_only], style=COLOURS[it.tone])
            if narrow:
                yield marked.append(f"  {it.lever}", style="bold").append(f"  {it.verdict}", style=COLOURS[it.tone])
                yield from _beneath(_joined(it))
            else:
                styles = ["", "bold", "", "", "", COLOURS[it.tone]]
                yield marked.append_text(_line(_cells(it), widths, styles))
            for line in (it.values, it.reason, *it.below):
                yield from _beneath(line, "dim")


def _cells(it: Row) -> tuple[str, ...]:
    return ("", it.lever, it.speedup, it.quality, it.memory, it.verdict)


def _line(cells: Sequence[str], widths: Sequence[int], styles: Sequence[str]) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for cell, width, style in zip(cells, widths, styles, strict=True):
        line.append(set_cell_size(cell, width), style=style).append(" " * _GAP)
    line.rstrip()
    return line


def _beneath(line: str, style: str = "") -> Iterator[RenderableType]:
    if line:
        yield indented(line, _INDENT, style)


def _joined(it: Row) -> str:
    parts = (it.speedup, it.quality and f"numbers {it.quality}", it.memory and f"memory {it.memory}")
    return ", ".join(part for part in parts if part)


def footnote(outcomes: Sequence[Outcome]) -> str:
    """The meaning of the intervals and of the word "exact"."""
    comparisons = [
        it for it in (getattr(outcome.verdict, "comparison", None) for outcome in outcomes) if it is not None
    ]
    levels = sorted({it.speed.confidence for it in comparisons})
    notes = [f"Intervals hold at {text.listed([f'{level * 100:.3g}' for level in levels])} %."] if levels else []
    exact = next((it.quality for it in comparisons if it.quality is not None and it.quality.verdict == "exact"), None)
    if exact is not None:
        notes.append(f"Exact: {exact_words(exact)}.")
    return " ".join(notes)


def _skipped_table(skipped: Sequence[tuple[str, str]]) -> Table:
    """The levers that were not tried, in the shortest form."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=3)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("", Text("not tried", style="dim"), "")
    for lever, why in skipped:
        table.add_row("", Text(lever, style="dim"), Text(why, style="dim"))
    return table


def _why_skipped(verdict: Skipped) -> str:
    bound = f" (bound {text.ratio(verdict.bound)})" if verdict.bound is not None else ""
    why = text.one_line(verdict.reason) + bound
    if not verdict.already:
        return why
    return f"in the script: {why}" if why else "in the script"
