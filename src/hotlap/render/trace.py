"""What a trace says, on the terminal: where the device's time went, why it waited, and for which kernels it worked.

Names come out of a file and are shown as plain text on one line, whatever is in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from hotlap.render import text
from hotlap.render.bars import Part, StackedBar, Swatch
from hotlap.render.layout import Trimmed, indented, open_table, paragraphs, shifted
from hotlap.trace.records import Breakdown, Cause, DeviceBreakdown, DeviceTime, IdleCause, StepTime

WIDEST = 120
_LONGEST_NAME = 64
_KERNELS_SHOWN = 10
_STEPS_SHOWN = 12
_GAPS_SHOWN = 5
_EVIDENCE_SHOWN = 4
_STREAMS_SHOWN = 8
_BILLION = 1e9
_PLACE = re.compile(r".*?((?:[^/]+/)?[^/]+\.py\(\d+\): \S.*)$")

_PARTS = (
    ("compute", Part(0, "green", "#", "#")),
    ("communication, exposed", Part(0, "magenta", "%", "%")),
    ("copies and memsets", Part(0, "yellow", "=", "=")),
    ("idle", Part(0, "red", ".", ".")),
)

CAUSES: dict[Cause, str] = {
    "data_loader": "waiting for the data loader",
    "host_sync": "host waited for the device",
    "blocking_copy": "blocking copy",
    "launch_bound": "launch-bound: the host issued work too slowly",
    "communication": "communication",
    "capture_or_compile": "graph capture, compilation or code loading",
    "between_steps": "Python between steps",
    "profiler": "the profiler itself",
    "queued": "from one kernel to the next",
    "unknown": "unknown",
}


def trace_report(breakdown: Breakdown) -> RenderableType:
    """One trace as a report."""
    pieces: list[RenderableType] = [Text(text.one_line(breakdown.facts.path), style="bold"), *_coverage(breakdown)]
    if breakdown.unreliable:
        warning = f"Do not trust these figures: {text.one_line(breakdown.unreliable)}."
        pieces.append(indented(Text(warning, style="bold red")))
    pieces += paragraphs([text.sentence(it) for it in breakdown.notes], style="yellow")
    for device in breakdown.devices:
        pieces += [Text(), *_device(device)]
    if not breakdown.devices and breakdown.steps:
        pieces += [Text(), Text("Steps", style="bold"), _steps(breakdown.steps)]
    return Trimmed(Constrain(Group(*pieces), WIDEST))


def traces_report(breakdowns: Sequence[Breakdown], skipped: Sequence[tuple[str, str]]) -> RenderableType:
    """Several traces of one folder: each one's report, a table that compares them, and the files that are no trace."""
    pieces: list[RenderableType] = []
    for it in breakdowns:
        pieces += [trace_report(it), Text()]
    if len(breakdowns) > 1:
        pieces += [Text("All traces", style="bold"), _comparison(breakdowns)]
    if skipped:
        pieces += [Text(), Text("Not read", style="bold")]
        pieces += paragraphs([f"{text.one_line(name)}: {text.one_line(why)}" for name, why in skipped])
    return Trimmed(Group(*pieces))


def _coverage(breakdown: Breakdown) -> Iterator[RenderableType]:
    seen = breakdown.coverage
    facts = breakdown.facts
    rank = f"rank {facts.rank} of {facts.world_size}; " if facts.rank is not None and facts.world_size else ""
    yield indented(
        f"{rank}{text.size(seen.bytes_read)} read; {seen.events:,} events: {seen.device_events:,} of devices "
        f"({seen.linked_events:,} linked to their launch, {seen.unlinked_events:,} not), {seen.host_events:,} of the "
        f"host, {seen.other_events:,} arrows, marks and names",
        style="dim",
    )


def _device(device: DeviceBreakdown) -> Iterator[RenderableType]:
    name = f" ({text.one_line(device.name)})" if device.name else ""
    window = text.duration(device.time.window_nanoseconds / _BILLION)
    yield Text(f"Device {device.device}{name}: {window} from its first to its last event", style="bold")
    yield from _account(device.time)
    if device.idle.causes:
        yield Text()
        yield Text("Why it was idle", style="bold")
        yield _causes(device)
        yield from _longest_gaps(device)
    if device.steps:
        yield Text()
        yield Text("Steps", style="bold")
        yield _steps(device.steps)
    yield Text()
    yield Text("Kernels", style="bold")
    yield from _kernels(device)
    if device.copies:
        yield Text()
        yield Text("Copies", style="bold")
        yield _copies(device)
    yield Text()
    yield Text("Waits within each stream", style="bold")
    yield _streams(device)


def _account(time: DeviceTime) -> Iterator[RenderableType]:
    amounts = (
        time.compute_nanoseconds,
        time.exposed_communication_nanoseconds,
        max(0, time.busy_nanoseconds - time.compute_nanoseconds - time.exposed_communication_nanoseconds),
        time.idle_nanoseconds,
    )
    parts = tuple(
        Part(amount, part.colour, part.pattern, part.plain) for amount, (_, part) in zip(amounts, _PARTS, strict=True)
    )
    yield shifted(StackedBar(parts, float(max(1, time.window_nanoseconds))))
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=True)
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    for (name, _), part, amount in zip(_PARTS, parts, amounts, strict=True):
        table.add_row(Swatch(part), Text(name), Text(_length(amount)), Text(_share(amount, time.window_nanoseconds)))
    yield shifted(table)
    if time.communication_nanoseconds:
        overlap = _share(time.overlapped_communication_nanoseconds, time.communication_nanoseconds)
        yield indented(
            f"communication took {_length(time.communication_nanoseconds)} in all, {overlap} of it behind compute",
            style="dim",
        )


def _causes(device: DeviceBreakdown) -> RenderableType:
    table = open_table("cause", ">time", ">of idle", ">gaps", "seen with")
    for cause in device.idle.causes:
        table.add_row(
            Text(CAUSES[cause.cause]),
            Text(_length(cause.nanoseconds)),
            Text(_share(cause.nanoseconds, device.idle.nanoseconds)),
            Text(f"{cause.gaps:,}"),
            Text(", ".join(_evidence(cause))),
        )
    return shifted(table)


def _evidence(cause: IdleCause) -> Iterator[str]:
    """The strongest thing of each role; a place in the user's code first."""
    order = {"place": 0, "loader": 1, "operator": 2, "call": 3, "next_kernel": 4}
    shown: dict[str, str] = {}
    for it in cause.evidence:
        if it.role != "next_kernel":
            shown.setdefault(it.role, event_name(it.name))
    yield from [shown[role] for role in sorted(shown, key=order.__getitem__)][:_EVIDENCE_SHOWN]
    if cause.host_operator_nanoseconds and cause.cause == "launch_bound":
        yield f"operators and calls cover {_length(cause.host_operator_nanoseconds)} of it"


def _longest_gaps(device: DeviceBreakdown) -> Iterator[RenderableType]:
    if not device.idle.longest:
        return
    table = open_table(">at", ">idle", "cause", "until")
    for gap in device.idle.longest[:_GAPS_SHOWN]:
        doing = gap.place or gap.operator or gap.call
        table.add_row(
            Text(_length(gap.start_nanoseconds)),
            Text(_length(gap.nanoseconds)),
            Text(gap.cause.replace("_", " ") + (f": {event_name(doing)}" if doing else "")),
            Text(event_name(gap.after, 28)),
        )
    yield Text()
    yield Text("The longest gaps", style="bold")
    yield shifted(table)


def _steps(steps: Sequence[StepTime]) -> RenderableType:
    table = open_table(
        ">step", ">time", ">busy", ">compute", ">exposed comm.", ">memory", ">idle", ">loader", ">kernels"
    )
    for step in steps[:_STEPS_SHOWN]:
        time = step.device
        shares = ("-",) * 5 if time is None else (
            _share(time.busy_nanoseconds, time.window_nanoseconds),
            _share(time.compute_nanoseconds, time.window_nanoseconds),
            _share(time.exposed_communication_nanoseconds, time.window_nanoseconds),
            _share(time.memory_nanoseconds, time.window_nanoseconds),
            _share(time.idle_nanoseconds, time.window_nanoseconds),
        )  # fmt: skip
        row = (str(step.number), _length(step.nanoseconds), *shares, _length(step.loader_nanoseconds))
        table.add_row(*map(Text, (*row, f"{step.kernels:,}")))
    if len(steps) > _STEPS_SHOWN:
        table.add_row(Text("..."), Text(f"{len(steps) - _STEPS_SHOWN} more"))
    return shifted(table)


def _kernels(device: DeviceBreakdown) -> Iterator[RenderableType]:
    summary = device.kernel_summary
    line = f"{summary.kernels:,} kernels of {summary.distinct:,} names"
    if summary.per_step is not None:
        line += f", {summary.per_step:,.0f} a step"
    if summary.launch_cost_nanoseconds is not None:
        line += f"; {text.share(summary.short_share)} are shorter than a launch costs the host "
        line += f"({_length(summary.launch_cost_nanoseconds)})"
    yield indented(line, style="dim")
    table = open_table("name", ">time", ">of busy", ">launches", ">mean", "tensor cores")
    for row in device.kernels[:_KERNELS_SHOWN]:
        table.add_row(
            Text(event_name(row.name)),
            Text(_length(row.nanoseconds)),
            Text(_share(row.nanoseconds, device.time.busy_nanoseconds)),
            Text(f"{row.launches:,}"),
            Text(_length(row.nanoseconds // row.launches)),
            Text({True: "yes", False: "no", None: ""}[row.tensor_cores]),
        )
    yield shifted(table)


def _copies(device: DeviceBreakdown) -> RenderableType:
    table = open_table("direction", "host memory", ">copies", ">time", ">size", ">rate")
    for row in device.copies:
        rate = text.rate(row.bytes / row.nanoseconds * _BILLION, "B") if row.nanoseconds and row.bytes else ""
        cells = (row.direction, row.memory, f"{row.copies:,}", _length(row.nanoseconds), text.size(row.bytes), rate)
        table.add_row(*map(Text, cells))
    return shifted(table)


def _streams(device: DeviceBreakdown) -> RenderableType:
    table = open_table(">stream", ">events", ">host wait", ">kernel wait", ">other")
    for row in sorted(device.streams, key=lambda it: -it.events)[:_STREAMS_SHOWN]:
        waits = (row.host_wait_nanoseconds, row.kernel_wait_nanoseconds, row.other_nanoseconds)
        table.add_row(*map(Text, (str(row.stream), f"{row.events:,}", *map(_length, waits))))
    if len(device.streams) > _STREAMS_SHOWN:
        table.add_row(Text("..."), Text(f"{len(device.streams) - _STREAMS_SHOWN} more"))
    return shifted(table)


def _comparison(breakdowns: Sequence[Breakdown]) -> RenderableType:
    shares = (">busy", ">compute", ">exposed comm.", ">idle")
    table = open_table("trace", ">rank", ">device", ">window", *shares, "largest cause of idle time")
    for it in breakdowns:
        rank = "" if it.facts.rank is None else str(it.facts.rank)
        for device in it.devices:
            time = device.time
            parts = (
                time.busy_nanoseconds, time.compute_nanoseconds, time.exposed_communication_nanoseconds,
                time.idle_nanoseconds,
            )  # fmt: skip
            cause = CAUSES[device.idle.causes[0].cause] if device.idle.causes else ""
            name = text.one_line(it.facts.path.rsplit("/", 1)[-1], limit=40)
            row = (name, rank, str(device.device), _length(time.window_nanoseconds))
            table.add_row(*map(Text, (*row, *(_share(part, time.window_nanoseconds) for part in parts), cause)))
    return shifted(table)


def _length(nanoseconds: int) -> str:
    return text.duration(nanoseconds / _BILLION)


def _share(part: int, whole: int) -> str:
    return text.share(part / whole) if whole else "-"


def event_name(name: str, limit: int = _LONGEST_NAME) -> str:
    """A kernel without its result type, a Python place without the folders it lies in, anything else as it is."""
    shown = text.one_line(name, limit=4 * _LONGEST_NAME).removeprefix("void ")
    place = _PLACE.match(shown)
    return text.one_line(place[1] if place else shown, limit=limit)
