"""The differences of two runs on the terminal: the step, its parts, and what else changed.

Names come from files and are shown as plain text on one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.text import Text

from hotlap.compare.records import Difference, DiffRow, DiffTable, FindingChange, Reason, SideSummary, Table, Verdict
from hotlap.records import PHASES, CallSite, Finding, Plan
from hotlap.render import text
from hotlap.render.blocks import Tone
from hotlap.render.brief import Brief, Next, Row
from hotlap.render.event_names import event_name, event_names
from hotlap.render.layout import Trimmed, indented, open_table, paragraphs, shifted
from hotlap.render.presentable import shown
from hotlap.render.trace import CAUSES

WIDEST = 120
_ROWS_SHOWN = 10
_LONGEST_PATH = 60
_WORTH_A_ROW = 0.005
_WORTH_A_REASON = 0.15

_TITLES: dict[Table, str] = {
    "phases": "Phases of a step",
    "device": "What the device did in a {step}",
    "host": "What the host did in a {step}",
    "idle": "Why the device was idle",
    "kernels": "Kernels",
    "operators": "Operators, own time on the host",
}
_NAMES: dict[str, str] = {
    **{str(cause): words for cause, words in CAUSES.items()},
    **{str(phase): words.title for phase, words in PHASES.items()},
    "compute": "computing",
    "exposed_communication": "communication, exposed",
    "copies": "copies and memsets",
    "idle": "idle",
    "loader": "waiting for the data loader",
    "sync": "waiting for a device",
    "operator": "operators and calls",
    "python": "Python and the rest",
    "rest": "the rest",
}
_HOW: dict[Reason, str] = {
    "": "",
    "appeared": "new",
    "vanished": "gone",
    "more-often": "more often",
    "less-often": "less often",
    "slower-each": "slower each time",
    "faster-each": "faster each time",
}
_WORDS: dict[Verdict, tuple[str, str]] = {
    "slower": ("slower", "bold red"),
    "faster": ("faster", "bold green"),
    "no-clear-change": ("no clear change", "bold yellow"),
    "not-comparable": ("not comparable", "bold yellow"),
}
_TONES: dict[Verdict, Tone] = {
    "slower": "bad", "faster": "good", "no-clear-change": "neutral", "not-comparable": "neutral"
}  # fmt: skip
_CHANGES = {
    "appeared": ("new", "bold red"),
    "vanished": ("gone", "bold green"),
    "costs-more": ("costs more", "red"),
    "costs-less": ("costs less", "green"),
}
_ADD_UP: tuple[Table, ...] = ("phases", "device", "host")
"""Tables whose rows are disjoint and add up to the step."""

_BEHIND: dict[str, Table] = {"idle": "idle", "compute": "kernels", "operator": "operators"}
"""The table with the components of a part."""

_COUNTED: dict[Table, str] = {"idle": "gaps", "kernels": "launches", "operators": "calls"}


def diff_report(found: Difference) -> RenderableType:
    """The whole comparison as a report."""
    pieces: list[RenderableType] = [_sides(found), Text(), _headline(found)]
    pieces += paragraphs([text.sentence(it) for it in found.warnings], style="yellow")
    pieces += paragraphs(_why(found), style="")
    for title, body in _sections(found):
        pieces += [Text(), Text(title, style="bold"), body]
    return Trimmed(Constrain(Group(*pieces), WIDEST))


def diff_summary(found: Difference, before: str, after: str) -> Brief:
    """The comparison on one screen; ``before`` and ``after`` are the sides as they were given."""
    sides = " ".join(text.shell_word(shown(it)) for it in (before, after))
    new = [it for it in found.findings if it.change in ("appeared", "costs-more") and it.after is not None]
    commands = [Next(f"hotlap findings {text.shell_word(new[0].rule)}", "explains what is new")] if new else []
    return Brief(
        top=f"hotlap diff  {_path(found.before)}  {_path(found.after)}",
        tone=_TONES[found.verdict],
        sentence=f"{_lengths(found)}: {_WORDS[found.verdict][0]}.",
        details=tuple(filter(None, (_spread(found),))),
        rows=(
            Row("Why", tuple(_why(found)), is_list=True, most=6, least=2),
            Row("Findings", tuple(map(_change_words, found.findings)), is_list=True, most=6, least=2),
            Row("Plans", tuple(_plans(found)), is_list=True, most=4, least=2),
            Row("Warning", tuple(text.sentence(it) for it in found.warnings), is_list=True, style="yellow"),
        ),
        commands=(*commands, Next(f"hotlap diff --full {sides}", "every table")),
    )


def _change_words(it: FindingChange) -> str:
    found = it.after or it.before
    title = text.one_line(found.title if found else it.rule)
    place = _place(found)
    return f"{_CHANGES[it.change][0]}: {title}{f' ({place})' if place else ''}"


def _sections(found: Difference) -> Iterator[tuple[str, RenderableType]]:
    step = {"step": "profiled step", "trace": "whole trace"}[found.per]
    for it in found.tables:
        rows = _shown_rows(it, found)
        if rows:
            drawn = _parts(rows) if it.table in _ADD_UP else _things(it, rows)
            yield _TITLES[it.table].format(step=step), drawn
    if found.findings:
        yield "Findings", Group(*map(_finding, found.findings))
    plans = list(_plans(found))
    if plans:
        yield "Plans", Group(*paragraphs(plans, style=""))
    if found.facts:
        yield "What else differs", _facts(found)


# ---------------------------------------------------------------------------------------------
# The answer
# ---------------------------------------------------------------------------------------------


def _sides(found: Difference) -> RenderableType:
    table = open_table("", "", "")
    table.show_header = False
    for name, side in (("before", found.before), ("after", found.after)):
        table.add_row(Text(name, style="dim"), Text(_path(side)), Text(_about(side), style="dim"))
    return table


def _path(side: SideSummary) -> str:
    """The end of a long path, which is the part that differs."""
    return text.clean(shown(text.one_line(side.path, limit=4000)), limit=_LONGEST_PATH)


def _about(side: SideSummary) -> str:
    steps = text.count(side.steps, "profiled step" if side.profiled else "step") if side.steps else "no steps marked"
    title = f"{event_name(side.title)}, " if side.title else ""
    return f"{side.kind}, {title}{steps}"


def _headline(found: Difference) -> RenderableType:
    word, style = _WORDS[found.verdict]
    line = Text(f"{_lengths(found)}: ").append(f"{word}.", style=style)
    spread = _spread(found)
    return Group(line, indented(spread, style="dim")) if spread else line


def _lengths(found: Difference) -> str:
    step = found.step
    what = {"step": "A step", "trace": "The whole trace"}[found.per]
    lengths = f"{what} took {text.duration(step.before_seconds)}, and now takes {text.duration(step.after_seconds)}"
    relative = f" ({_signed_share(step.change_seconds / step.before_seconds)})" if step.before_seconds else ""
    return f"{lengths}{relative}"


def _spread(found: Difference) -> str:
    if found.change is None or found.change.low == found.change.high:
        return ""
    spread = f"{_signed_share(found.change.low)} to {_signed_share(found.change.high)}"
    return f"95 % interval by how these steps vary: {spread}"


def _why(found: Difference) -> Iterator[str]:
    """The parts of the step that account for most of the change, each with its main component.

    If the step itself did not clearly change, the parts that changed by a large share of it.
    """
    tables = {it.table: it for it in found.tables}
    if found.verdict in ("slower", "faster"):
        for parts in _ADD_UP:
            if parts in tables:
                yield from _reasons(tables[parts], tables)
    elif found.verdict == "no-clear-change":
        yield from _large_changes(found, tables)


def _reasons(parts: DiffTable, tables: Mapping[Table, DiffTable]) -> Iterator[str]:
    for row in parts.rows:
        if row.share_of_change is None or row.share_of_change < _WORTH_A_REASON:
            continue
        line = f"{_name(row.name)}: {_signed(row.change_seconds)}, {text.share(row.share_of_change)} of the change"
        behind = tables.get(_BEHIND[row.name]) if row.name in _BEHIND else None
        yield line + (_mostly(behind, row) if behind is not None else "")


def _large_changes(found: Difference, tables: Mapping[Table, DiffTable]) -> Iterator[str]:
    """List causes of idle time separately: a loss of one may be a gain of another."""
    whole = (found.traced_step or found.step).before_seconds
    for table in ("phases", "host", "device", "idle"):
        for row in tables[table].rows if table in tables else ():
            caused = table == "device" and row.name == "idle" and "idle" in tables
            if not caused and abs(row.change_seconds) >= _WORTH_A_REASON * whole > 0:
                lengths = f"{text.duration(row.before_seconds)} -> {text.duration(row.after_seconds)}"
                yield f"{_name(row.name)}: {lengths} in a step ({_signed(row.change_seconds)})"


def _mostly(behind: DiffTable, row: DiffRow) -> str:
    """The component of a part that changed most in the same direction."""
    same_way = [it for it in behind.rows if it.change_seconds * row.change_seconds > 0]
    if not same_way:
        return ""
    most = same_way[0]
    how = f", {_HOW[most.reason]}" if most.reason else ""
    return f"; most of all {_name(most.name)} ({_signed(most.change_seconds)}{how})"


# ---------------------------------------------------------------------------------------------
# Tables
# ---------------------------------------------------------------------------------------------


def _shown_rows(table: DiffTable, found: Difference) -> Sequence[DiffRow]:
    """All parts of a step, and the kernels or operators with relevant changes."""
    if table.table in _ADD_UP:
        return [it for it in table.rows if it.before_seconds or it.after_seconds]
    whole = found.traced_step or found.step
    least = _WORTH_A_ROW * max(whole.before_seconds, abs(whole.change_seconds))
    return [it for it in table.rows if abs(it.change_seconds) >= least][:_ROWS_SHOWN]


def _parts(rows: Sequence[DiffRow]) -> RenderableType:
    """A table of the parts of a step: few, with short names."""
    with_share = any(it.share_of_change is not None for it in rows)
    table = open_table("", ">before", ">after", ">change", *((">of the change",) if with_share else ()))
    for row in rows:
        cells = [_name(row.name), text.duration(row.before_seconds), text.duration(row.after_seconds)]
        cells += [_signed(row.change_seconds), *([_share_of_change(row)] if with_share else [])]
        table.add_row(*map(Text, cells))
    return shifted(table)


def _things(table: DiffTable, rows: Sequence[DiffRow]) -> RenderableType:
    """A list of kernels or operators with long names: each with its figures below its name."""
    with_share = any(it.share_of_change is not None for it in rows)
    drawn = open_table(">change", *((">of the change",) if with_share else ()), "")
    names = event_names([it.name for it in rows])
    for row in rows:
        cells = [Text(_signed(row.change_seconds)), *([Text(_share_of_change(row))] if with_share else [])]
        name = _NAMES.get(row.name) or names[row.name]
        drawn.add_row(*cells, Group(Text(name), Text(_figures(row, _COUNTED[table.table]), style="dim")))
    left_out = len(table.rows) - len(rows) + table.rows_left_out
    more = paragraphs([f"{left_out:,} more, each of which changed by less"]) if left_out else []
    return Group(shifted(drawn), *more)


def _figures(row: DiffRow, counted: str) -> str:
    """``0 ms -> 47.3 ms; gaps 0 -> 0.833; new``."""
    seconds = f"{text.duration(row.before_seconds)} -> {text.duration(row.after_seconds)}"
    before, after = _count(row.before_count), _count(row.after_count)
    often = f"{counted} {before}" if before == after else f"{counted} {before} -> {after}"
    return "; ".join(part for part in (seconds, often, _HOW[row.reason]) if part)


def _share_of_change(row: DiffRow) -> str:
    return text.share(row.share_of_change) if row.share_of_change is not None else "-"


def _count(number: float | None) -> str:
    """The count per step: an integer, or three significant digits."""
    if number is None:
        return "-"
    return f"{number:,.0f}" if number == round(number) or number >= 100 else f"{number:.3g}"


# ---------------------------------------------------------------------------------------------
# Findings, plans, facts
# ---------------------------------------------------------------------------------------------


def _finding(it: FindingChange) -> RenderableType:
    found = it.after or it.before
    word, style = _CHANGES[it.change]
    line = Text(f"{word:<10} ", style=style)
    line.append(text.one_line(found.title if found else it.rule), style="not bold default")
    place = _place(found)
    cost = f"{text.cost(it.before.share)} -> {text.cost(it.after.share)}" if it.before and it.after else ""
    behind = "  ".join(part for part in (text.one_line(it.rule), cost, place) if part)
    return Group(indented(line), indented(Text(behind, style="dim"), 13))


def _place(found: Finding | None) -> str:
    site: CallSite | None = found.site if found else None
    return text.one_line(f"{PurePath(site.file).name}:{site.line}") if site and site.file else ""


def _plans(found: Difference) -> Iterator[str]:
    """The plan and gain of each search that kept a lever."""
    before, after = found.before, found.after
    if not any(side.plan and side.plan.settings for side in (before, after)):
        return
    for name, side in (("before", before), ("after", after)):
        gain = f": {text.ratio(side.gain.value)} ({text.interval(side.gain)})" if side.gain else ""
        yield f"{name}: {_levers(side.plan)}{gain}"


def _levers(plan: Plan | None) -> str:
    if plan is None:
        return "no study"
    return text.listed([text.setting(it) for it in plan.settings]) or "no lever was kept"


def _facts(found: Difference) -> RenderableType:
    table = open_table("", "before", "after")
    for it in found.facts:
        cells = (event_name(it.name), event_name(it.before) or "-", event_name(it.after) or "-")
        table.add_row(*map(Text, cells))
    return shifted(table)


# ---------------------------------------------------------------------------------------------
# Words and numbers
# ---------------------------------------------------------------------------------------------


def _name(name: str) -> str:
    return _NAMES.get(name) or event_name(name)


def _signed(seconds: float) -> str:
    return f"{'+' if seconds > 0 else '-' if seconds < 0 else ''}{text.duration(abs(seconds))}"


def _signed_share(share: float) -> str:
    return f"{'+' if share >= 1e-4 else ''}{text.share(share)}"
