"""A trace on the terminal: the device's time, its causes of idle time, and its kernels.

Names come out of a file and are shown as plain text on one line, whatever is in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hotlap.diagnose.trace_verdict import TraceVerdict
from hotlap.render import text
from hotlap.render.event_names import event_name, file_names
from hotlap.render.lines import Paper, Styled, Table, bar, paragraph, styled
from hotlap.render.parts import Part, swatch
from hotlap.render.presentable import shown
from hotlap.render.trace_code import code_lines
from hotlap.render.trace_collectives import arrival_lines, collective_lines
from hotlap.render.trace_graphs import graph_lines
from hotlap.render.trace_host import host_tables
from hotlap.render.trace_kernels import kernels
from hotlap.render.trace_memory import memory_lines
from hotlap.render.trace_path import path_lines
from hotlap.render.trace_verdict import verdict_lines
from hotlap.traces.collective_records import CollectiveComparison
from hotlap.traces.conclusion import conclusion_of, device_conclusion
from hotlap.traces.records import (
    Breakdown,
    Conclusion,
    DeviceBreakdown,
    DeviceTime,
    IdleCause,
    Limit,
    RankComparison,
    StepTime,
)

WIDEST = 120
ROWS_SHOWN = 10
_LONGEST_FILE = 40
_STEPS_SHOWN = 12
_GAPS_SHOWN = 5
_EVIDENCE_SHOWN = 4
_STREAMS_SHOWN = 8
_RANKS_SHOWN = 32
_PAGES_SHOWN = 4
_TRACES_SHOWN = 40
_FILES_NAMED = 5
_MOSTLY = 0.8
_BILLION = 1e9

_PARTS = (
    ("compute", Part(0, "green", "#", "#")),
    ("communication, exposed", Part(0, "magenta", "%", "%")),
    ("copies and memsets", Part(0, "yellow", "=", "=")),
    ("idle", Part(0, "red", ".", ".")),
)

CAUSES: dict[Limit, str] = {
    "data_loader": "waiting for the data loader",
    "host_sync": "host waited for the device",
    "blocking_copy": "blocking copy",
    "launch_bound": "launch-bound: the host issued work too slowly",
    "communication": "communication",
    "capture_or_compile": "graph capture, compilation or code loading",
    "initialisation": "initialisation at first use",
    "between_steps": "Python between steps",
    "profiler": "the profiler itself",
    "queued": "from one kernel to the next",
    "unknown": "unknown",
}


LIMITS: dict[Limit, str] = {
    **CAUSES,
    "launch_bound": "a host that issues work too slowly (launch-bound)",
    "host_sync": "the host, which waited for the device and left it without work",
    "blocking_copy": "blocking copies",
    "unknown": "waits that the trace does not explain",
    "compute": "computing",
    "copies": "copies and memsets",
    "python": "Python and the rest",
}


def traces_report(
    breakdowns: Sequence[Breakdown],
    skipped: Sequence[tuple[str, str]],
    comparison: RankComparison | None,
    paper: Paper,
    *,
    verdicts: Sequence[TraceVerdict] = (),
    rows: int = ROWS_SHOWN,
    arrivals: CollectiveComparison | None = None,
) -> str:
    """Several traces of one folder: each one's report, what compares them, the files that are no trace, and at the end
    the verdicts on the traces that are shown. ``rows`` bounds the tables of kernels, operators, modules and lines."""
    paper = paper._replace(width=min(paper.width, WIDEST))
    lines: list[str] = []
    shown_here = {it.facts.path for it in breakdowns} | {""}
    if len(breakdowns) > _PAGES_SHOWN:
        most = max(breakdowns, key=most_idle)
        title = f"{len(breakdowns)} traces, of which this one's device was idle longest"
        if not most.devices:
            title = f"{len(breakdowns)} traces, of which this is the first"
        shown_here = {most.facts.path, ""}
        lines += [*paragraph(f"{title}; `hotlap trace FILE` shows another.", paper), "", *_trace(most, paper, rows), ""]
    else:
        for it in breakdowns:
            lines += [*_trace(it, paper, rows), ""]
    if len(breakdowns) > 1:
        lines += [*_headed("All traces", _overview(breakdowns), paper), ""]
    if comparison is not None:
        lines += [*_ranks(comparison, paper), ""]
    lines += arrival_lines(arrivals, paper)
    if skipped:
        lines += [styled("Not read", "bold", paper), *_not_read(skipped, paper), ""]
    lines += verdict_lines([it for it in verdicts if it.path in shown_here], paper)
    return "\n".join(lines).rstrip("\n")


def most_idle(breakdown: Breakdown) -> int:
    """The idle nanoseconds of all devices, by which traces are ordered."""
    return sum(it.time.idle_nanoseconds for it in breakdown.devices)


def _not_read(skipped: Sequence[tuple[str, str]], paper: Paper) -> Iterator[str]:
    """A few files each with its reason; many grouped by reason, with the name of the first."""
    if len(skipped) <= _FILES_NAMED:
        for name, why in skipped:
            yield from paragraph(f"{shown(text.one_line(name))}: {text.one_line(why)}", paper, indent=2, style="dim")
        return
    reasons: dict[str, list[str]] = {}
    for name, why in skipped:
        reasons.setdefault(why, []).append(name)
    for why, names in list(reasons.items())[:_FILES_NAMED]:
        short = file_names(names, _LONGEST_FILE)
        line = (
            f"{text.count(len(names), 'file')}: {text.one_line(why)} ({', '.join(list(short.values())[:_FILES_NAMED])}"
        )
        line += ", ...)" if len(names) > _FILES_NAMED else ")"
        yield from paragraph(line, paper, indent=2, style="dim")
    if len(reasons) > _FILES_NAMED:
        rest = sum(map(len, list(reasons.values())[_FILES_NAMED:]))
        yield from paragraph(f"{text.count(rest, 'file')} for other reasons", paper, indent=2, style="dim")


def _trace(breakdown: Breakdown, paper: Paper, rows: int) -> Iterator[str]:
    yield from paragraph(shown(text.one_line(breakdown.facts.path)), paper, style="bold")
    yield from paragraph(_coverage(breakdown), paper, indent=2, style="dim")
    if breakdown.unreliable:
        warning = f"Do not trust these figures: {text.one_line(breakdown.unreliable)}."
        yield from paragraph(warning, paper, indent=2, style="bold red")
    for note in breakdown.notes:
        yield from paragraph(text.sentence(note), paper, indent=2, style="yellow")
    for device in breakdown.devices:
        yield ""
        yield from _device(device, paper, rows, unreliable=bool(breakdown.unreliable))
    if not breakdown.devices:
        found = conclusion_of(breakdown)
        if found is not None:
            yield from paragraph(conclusion_sentence(found, of="host"), paper, indent=2)
        tables = [
            *([("Steps", _steps(breakdown.steps))] if breakdown.steps else []),
            *host_tables(breakdown, rows=rows),
        ]
        for title, table in tables:
            yield ""
            yield from _headed(title, table, paper)
    yield from graph_lines(breakdown, paper, rows=rows)
    yield from code_lines(breakdown, paper, rows=rows)
    yield from path_lines(breakdown.critical_path, paper)
    yield from collective_lines(breakdown.collectives, paper)
    yield from memory_lines(breakdown.memory, paper)


def _headed(title: str, table: Table, paper: Paper) -> Iterator[str]:
    yield styled(title, "bold", paper)
    yield from table.lines(paper)


def _coverage(breakdown: Breakdown) -> str:
    seen = breakdown.coverage
    facts = breakdown.facts
    rank = f"rank {facts.rank} of {facts.world_size}; " if facts.rank is not None and facts.world_size else ""
    return (
        f"{rank}{text.size(seen.bytes_read)} read; {seen.events:,} events: {seen.device_events:,} of devices "
        f"({seen.linked_events:,} linked to their launch, {seen.unlinked_events:,} not), {seen.host_events:,} of the "
        f"host, {seen.other_events:,} arrows, marks and names"
    )


def conclusion_sentence(found: Conclusion, *, of: str = "device") -> str:
    """The largest loss, or that there is none."""
    amount = f"{text.length(found.nanoseconds)}, {text.share(found.share)} of the time"
    if found.limit != "compute":
        return f"Largest loss: {LIMITS[found.limit]} ({amount})."
    if of == "host":
        return f"Operators take {text.share(found.share)} of the steps, and no wait takes a tenth of them."
    if found.share >= _MOSTLY:
        return f"It computes {text.share(found.share)} of the time: only fewer or faster kernels make it shorter."
    return f"No loss takes a tenth of the time; it computes {text.share(found.share)} of it."


def _device(device: DeviceBreakdown, paper: Paper, rows: int, *, unreliable: bool) -> Iterator[str]:
    name = f" ({text.one_line(device.name)})" if device.name else ""
    window = text.length(device.time.window_nanoseconds)
    title = f"Device {device.device}{name}: {window} from its first to its last event"
    yield from paragraph(title, paper, style="bold")
    if not unreliable:
        yield from paragraph(conclusion_sentence(device_conclusion(device)), paper, indent=2)
    yield from _account(device.time, paper)
    tables = {
        "Why it was idle": _causes(device) if device.idle.causes else None,
        "The longest gaps": _longest_gaps(device) if device.idle.longest else None,
        "Steps": _steps(device.steps) if device.steps else None,
        "Kernels": kernels(device, rows),
        "Copies": _copies(device) if device.copies else None,
        "Waits within each stream": _streams(device),
    }
    for title, table in tables.items():
        if table is not None:
            yield ""
            yield from _headed(title, table, paper)


def _account(time: DeviceTime, paper: Paper) -> Iterator[str]:
    amounts = (
        time.compute_nanoseconds,
        time.exposed_communication_nanoseconds,
        time.exposed_copy_nanoseconds,
        time.idle_nanoseconds,
    )
    parts = [part._replace(amount=amount) for amount, (_, part) in zip(amounts, _PARTS, strict=True)]
    yield bar(parts, float(max(1, time.window_nanoseconds)), paper, indent=2)
    table = Table("", "", ">", ">")
    for (name, _), part, amount in zip(_PARTS, parts, amounts, strict=True):
        sign = Styled(swatch(part, paper.colours, paper.ascii_only), part.colour)
        table.add(sign, name, text.length(amount), text.share_of(amount, time.window_nanoseconds))
    yield from table.lines(paper)
    if time.communication_nanoseconds:
        overlap = text.share_of(time.overlapped_communication_nanoseconds, time.communication_nanoseconds)
        note = (
            f"communication took {text.length(time.communication_nanoseconds)} in all, {overlap} of it behind compute"
        )
        yield from paragraph(note, paper, indent=2, style="dim")


def _causes(device: DeviceBreakdown) -> Table:
    table = Table("cause", ">time", ">of idle", ">gaps", "seen with")
    for cause in device.idle.causes:
        table.add(
            CAUSES[cause.cause],
            text.length(cause.nanoseconds),
            text.share_of(cause.nanoseconds, device.idle.nanoseconds),
            f"{cause.gaps:,}",
            ", ".join(_evidence(cause)),
        )
    return table


def _evidence(cause: IdleCause) -> Iterator[str]:
    """The strongest thing of each role; a place in the user's code first."""
    order = {"place": 0, "loader": 1, "operator": 2, "call": 3, "next_kernel": 4}
    shown: dict[str, str] = {}
    for it in cause.evidence:
        if it.role != "next_kernel":
            shown.setdefault(it.role, event_name(it.name))
    yield from [shown[role] for role in sorted(shown, key=order.__getitem__)][:_EVIDENCE_SHOWN]
    if cause.host_operator_nanoseconds and cause.cause == "launch_bound":
        yield f"operators and calls cover {text.length(cause.host_operator_nanoseconds)} of it"


def _longest_gaps(device: DeviceBreakdown) -> Table:
    table = Table(">at", ">idle", "cause", "until")
    for gap in device.idle.longest[:_GAPS_SHOWN]:
        doing = gap.place or gap.operator or gap.call
        cause = gap.cause.replace("_", " ") + (f": {event_name(doing)}" if doing else "")
        table.add(text.length(gap.start_nanoseconds), text.length(gap.nanoseconds), cause, event_name(gap.after, 28))
    return table


def _steps(steps: Sequence[StepTime]) -> Table:
    shares = (">busy", ">compute", ">exposed comm.", ">memory", ">idle") if any(it.device for it in steps) else ()
    table = Table(">step", ">time", *shares, ">loader", *([">kernels"] if shares else []))
    for step in steps[:_STEPS_SHOWN]:
        cells = [str(step.number), text.length(step.nanoseconds)]
        if step.device is not None:
            time = step.device
            parts = (
                time.busy_nanoseconds, time.compute_nanoseconds, time.exposed_communication_nanoseconds,
                time.memory_nanoseconds, time.idle_nanoseconds,
            )  # fmt: skip
            cells += [text.share_of(part, time.window_nanoseconds) for part in parts]
        table.add(*cells, text.length(step.loader_nanoseconds), *([f"{step.kernels:,}"] if shares else []))
    if len(steps) > _STEPS_SHOWN:
        table.add("...", f"{len(steps) - _STEPS_SHOWN} more")
    return table


def _copies(device: DeviceBreakdown) -> Table:
    table = Table("direction", "host memory", ">copies", ">time", ">size", ">rate")
    for row in device.copies:
        rate = text.rate(row.bytes / row.nanoseconds * _BILLION, "B") if row.nanoseconds and row.bytes else ""
        table.add(
            row.direction, row.memory, f"{row.copies:,}", text.length(row.nanoseconds), text.size(row.bytes), rate
        )
    return table


def _streams(device: DeviceBreakdown) -> Table:
    table = Table(">stream", ">events", ">host wait", ">kernel wait", ">other")
    for row in sorted(device.streams, key=lambda it: -it.events)[:_STREAMS_SHOWN]:
        waits = (row.host_wait_nanoseconds, row.kernel_wait_nanoseconds, row.other_nanoseconds)
        table.add(str(row.stream), f"{row.events:,}", *map(text.length, waits))
    if len(device.streams) > _STREAMS_SHOWN:
        table.add("...", f"{len(device.streams) - _STREAMS_SHOWN} more")
    return table


def _overview(breakdowns: Sequence[Breakdown]) -> Table:
    shares = (">busy", ">compute", ">exposed comm.", ">idle")
    table = Table("trace", ">rank", ">device", ">window", *shares, "largest cause of idle time")
    listed = breakdowns
    if len(breakdowns) > _TRACES_SHOWN:
        listed = sorted(breakdowns, key=most_idle, reverse=True)[:_TRACES_SHOWN]
        table.about = f"the {_TRACES_SHOWN} of {len(breakdowns):,} whose devices were idle longest"
    files = file_names([it.facts.path for it in listed], _LONGEST_FILE)
    for it in listed:
        rank = "" if it.facts.rank is None else str(it.facts.rank)
        for device in it.devices:
            time = device.time
            parts = (
                time.busy_nanoseconds, time.compute_nanoseconds, time.exposed_communication_nanoseconds,
                time.idle_nanoseconds,
            )  # fmt: skip
            cause = CAUSES[device.idle.causes[0].cause] if device.idle.causes else ""
            row = (files[it.facts.path], rank, str(device.device), text.length(time.window_nanoseconds))
            table.add(*row, *(text.share_of(part, time.window_nanoseconds) for part in parts), cause)
        if not it.devices:
            table.add(files[it.facts.path], rank, "-", text.length(it.host_nanoseconds))
    return table


def _ranks(comparison: RankComparison, paper: Paper) -> Iterator[str]:
    """The ranks of one run in a table, with the one that the others wait for."""
    table = Table(
        ">rank",
        ">compute",
        ">exposed comm.",
        ">idle",
        ">waits for others",
        "trace",
        about=_who_is_waited_for(comparison),
    )
    files = file_names([it.path for it in comparison.ranks[:_RANKS_SHOWN]], _LONGEST_FILE)
    for row in comparison.ranks[:_RANKS_SHOWN]:
        parts = (
            row.compute_nanoseconds, row.exposed_communication_nanoseconds, row.idle_nanoseconds,
            row.waiting_nanoseconds,
        )  # fmt: skip
        table.add(str(row.rank), *(text.share_of(part, row.window_nanoseconds) for part in parts), files[row.path])
    if len(comparison.ranks) > _RANKS_SHOWN:
        table.add("...", f"{len(comparison.ranks) - _RANKS_SHOWN} more")
    yield from _headed("Ranks of one run", table, paper)
    if comparison.missing_ranks:
        note = f"{text.count(comparison.missing_ranks, 'rank')} of the run left no trace here that can be compared."
        yield from paragraph(note, paper, indent=2, style="yellow")


def _who_is_waited_for(comparison: RankComparison) -> str:
    over = text.count(len(comparison.steps), "step") if comparison.steps else "their whole windows"
    share = text.share(comparison.waiting_share)
    last = next((it for it in comparison.ranks if it.rank == comparison.waited_for), None)
    if last is None:
        return f"no rank is waited for in particular; over {over} they wait {share} of the time for one another"
    others = [it for it in comparison.ranks if it is not last]
    compute = last.compute_nanoseconds - sum(it.compute_nanoseconds for it in others) / len(others)
    idle = last.idle_nanoseconds - sum(it.idle_nanoseconds for it in others) / len(others)
    longer, what = max((compute, "computes"), (idle, "is idle"))
    reason = f"; it {what} {text.length(round(longer))} longer than they do" if longer > 0 else ""
    return f"rank {last.rank} is waited for: over {over} the others wait {share} of the time for it{reason}"
