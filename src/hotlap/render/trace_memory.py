"""Memory over time, on the terminal: the peak and what held it, a chart, and the growth from step to step."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.render import text
from hotlap.render.area_chart import area_chart
from hotlap.render.event_names import event_name
from hotlap.render.lines import Paper, Table, paragraph, styled
from hotlap.traces.memory_records import MemoryOverTime, Phase

_HOLDERS_SHOWN = 8
_DEVICES_SHOWN = 4
_WIDEST_CHART = 60
_LEAST_SHARE = 0.001

_PHASES: dict[Phase, str] = {
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "data_loader": "data loader",
    "unknown": "",
}


def memory_lines(uses: tuple[MemoryOverTime, ...], paper: Paper) -> Iterator[str]:
    """The devices with the most memory; nothing if the trace has no memory events."""
    for it in sorted(uses, key=lambda it: -it.peak.allocated_bytes)[:_DEVICES_SHOWN]:
        yield ""
        yield from _one(it, paper)
    if len(uses) > _DEVICES_SHOWN:
        yield from paragraph(f"{len(uses) - _DEVICES_SHOWN} more devices in `--json`", paper, indent=2, style="dim")


def _one(use: MemoryOverTime, paper: Paper) -> Iterator[str]:
    name = "Memory of the host" if use.on_host else f"Memory of device {use.device}"
    yield styled(name, "bold", paper)
    yield from paragraph(_peak(use), paper, indent=2)
    yield from _chart(use, paper)
    if use.growth_bytes_per_step is not None:
        yield from paragraph(_growth(use), paper, indent=2)
    if use.holders:
        yield from _holders(use).lines(paper)


def _peak(use: MemoryOverTime) -> str:
    peak = use.peak
    amount = f"{text.size(peak.allocated_bytes)} allocated"
    if not use.absolute:
        amount += " since the trace began"
    if use.peak_reserved_bytes is not None:
        amount += f" (up to {text.size(use.peak_reserved_bytes)} reserved)"
    where = [f"step {peak.step}"] if peak.step is not None else []
    names = (_PHASES[peak.phase], event_name(peak.operator), event_name(peak.module), event_name(peak.place))
    where += [it for it in names if it]
    return f"Peak: {amount}" + (f" in {', '.join(where)}" if where else "")


def _chart(use: MemoryOverTime, paper: Paper) -> Iterator[str]:
    length = text.length(use.nanoseconds)
    top = text.size(use.peak.allocated_bytes)
    room = paper.width - len(top) - 4
    lines = list(area_chart(use.samples, paper, width=min(_WIDEST_CHART, room), style="green"))
    for index, line in enumerate(lines):
        label = top if index == 0 else "0 B" if index == len(lines) - 1 else ""
        yield f"  {label:>{len(top)}}  {line}"
    yield from paragraph(f"over {length}, {use.changes:,} changes", paper, indent=len(top) + 4, style="dim")


def _growth(use: MemoryOverTime) -> str:
    growth = use.growth_bytes_per_step or 0
    if use.grows_every_step and growth > 0:
        return f"Every step ended with more than the one before: {text.size(growth)} per step (median)."
    ends = [it.end_bytes for it in use.steps]
    lowest, highest = text.size(min(ends)), text.size(max(ends))
    if lowest == highest:
        return f"No growth: every step ended with {lowest}."
    return f"No steady growth: steps ended with {lowest} to {highest}."


def _holders(use: MemoryOverTime) -> Table:
    # A line shared by all rows is omitted; that of the peak is named above.
    places_differ = len({it.place for it in use.holders}) > 1
    table = Table("in use at the peak", "phase", ">size", ">of peak", ">allocations", "?module", "?allocated at")
    whole = use.peak.allocated_bytes
    if use.held_before_bytes:
        share = text.share_of(use.held_before_bytes, whole)
        table.add("allocated before the trace began", "", text.size(use.held_before_bytes), share)
    shown = [it for it in use.holders[:_HOLDERS_SHOWN] if it.bytes >= _LEAST_SHARE * whole]
    for it in shown:
        table.add(
            event_name(it.operator) if it.operator else "outside of operators",
            _PHASES[it.phase],
            text.size(it.bytes),
            text.share_of(it.bytes, whole),
            f"{it.allocations:,}",
            event_name(it.module),
            event_name(it.place) if places_differ else "",
        )
    rest = use.holders[len(shown) :]
    if rest:
        table.add(f"{len(rest)} more", "", text.size(sum(it.bytes for it in rest)))
    return table
