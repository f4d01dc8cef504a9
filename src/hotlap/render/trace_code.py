"""Time by module and by source line of a trace, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hotlap.render import text
from hotlap.render.event_names import event_name, event_names
from hotlap.render.lines import Paper, Table, paragraph, styled
from hotlap.traces.code_records import CodeTime, CodeWork, DirectedTime, ModuleRow
from hotlap.traces.records import Breakdown

_DEEPEST = 16
_NOT_RECORDED = "Time by module and source line was not recorded: pass `with_stack=True` to torch.profiler."


def code_lines(breakdown: Breakdown, paper: Paper, *, rows: int) -> Iterator[str]:
    """The tables with data, each with so many ``rows``; a sentence without any."""
    code = breakdown.code
    if code is None:
        yield ""
        yield from paragraph(_NOT_RECORDED, paper, style="dim")
        return
    view = _View.of(code, breakdown)
    for title, table in _tables(code, view, rows):
        yield ""
        yield styled(f"{view.what} by {title}", "bold", paper)
        yield from table.lines(paper)


class _View(NamedTuple):
    """Which times are shown: the device's, or the host's without a device."""

    device: bool
    what: str
    window_nanoseconds: int
    steps: bool
    backward: bool

    @classmethod
    def of(cls, code: CodeTime, breakdown: Breakdown) -> _View:
        device = bool(breakdown.devices)
        works = [*code.modules, *code.lines, code.outside_modules, code.outside_lines]
        return cls(
            device=device,
            what="Device time" if device else "Host time of operators",
            window_nanoseconds=code.device_window_nanoseconds if device else code.window_nanoseconds,
            steps=bool(breakdown.steps),
            backward=any((it.device if device else it.host).backward_nanoseconds for it in works),
        )

    def time(self, work: CodeWork) -> DirectedTime:
        return work.device if self.device else work.host

    def table(self, first: str, about: str) -> Table:
        directions = (">forward", ">backward") if self.backward else ()
        share = ">of the steps" if self.steps else ">of the trace"
        return Table(first, ">self", ">total", *directions, share, about=about)

    def cells(self, work: CodeWork) -> Iterator[str]:
        time = self.time(work)
        yield text.length(time.self_nanoseconds)
        yield text.length(time.nanoseconds)
        if self.backward:
            yield text.length(time.forward_nanoseconds)
            yield text.length(time.backward_nanoseconds)
        yield text.share_of(time.nanoseconds, self.window_nanoseconds)


def _tables(code: CodeTime, view: _View, rows: int) -> Iterator[tuple[str, Table]]:
    if code.modules:
        yield "module", _modules(code, view, rows)
    if code.lines:
        yield "source line" if code.exact_lines else "function of your code", _lines(code, view, rows)


def _modules(code: CodeTime, view: _View, rows: int) -> Table:
    table = view.table("module", _about_backward(code, view))
    shown = _costliest(code.modules, view, rows)
    for it in shown:
        instances = f" ({it.instances:,})" if it.instances > 1 else ""
        indent = "  " * min(len(it.path) - 1, _DEEPEST)
        table.add(f"{indent}{event_name(it.path[-1])}{instances}", *view.cells(it))
    _add_rest(table, code.distinct_modules - len(shown))
    _add_outside(table, "outside of modules", code.outside_modules, view)
    return table


def _costliest(modules: Sequence[ModuleRow], view: _View, rows: int) -> list[ModuleRow]:
    """Rows in the order of the tree; parents cost at least as much as children, so none is missing."""
    ranked = sorted(range(len(modules)), key=lambda it: (-view.time(modules[it]).nanoseconds, it))
    return [modules[it] for it in sorted(ranked[:rows])]


def _lines(code: CodeTime, view: _View, rows: int) -> Table:
    shown = code.lines[:rows]
    about = "" if code.exact_lines else "with the line on which each function begins"
    table = view.table("line" if code.exact_lines else "function", about)
    names = event_names([it.place for it in shown])
    for it in shown:
        table.add(names[it.place], *view.cells(it))
    _add_rest(table, code.distinct_lines - len(shown))
    _add_outside(table, "outside of your code", code.outside_lines, view)
    return table


def _about_backward(code: CodeTime, view: _View) -> str:
    if not view.backward:
        return ""
    about = "backward counts for the module whose forward it belongs to"
    unmapped = view.time(code.unmapped_backward).nanoseconds
    return f"{about}; {text.length(unmapped)} of it names no forward operator" if unmapped else about


def _add_rest(table: Table, hidden: int) -> None:
    if hidden > 0:
        table.add(f"{hidden:,} more (--rows)")


def _add_outside(table: Table, name: str, work: CodeWork, view: _View) -> None:
    if view.time(work).nanoseconds:
        table.add(name, *view.cells(work))
