"""The critical path on the terminal: its parts and longest contributors."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.render import text
from hotlap.render.event_names import event_name, event_names
from hotlap.render.lines import Paper, Table, styled
from hotlap.traces.path_records import CriticalPath, PathKind

_CONTRIBUTORS_SHOWN = 8
_LEAST_SHARE = 0.001
_LONGEST_NAME = 48

_KINDS: dict[PathKind, str] = {
    "compute": "kernels",
    "communication": "communication",
    "copy": "copies and memsets",
    "queue": "device, between queued events",
    "launch": "launch latency",
    "sync_return": "host, returning from a synchronization",
    "operator": "host, in operators and runtime calls",
    "loader": "host, waiting for the data loader",
    "python": "host, in Python and the rest",
}
_SIDES: dict[PathKind, str] = {
    "compute": "kernel", "communication": "communication", "copy": "copy", "operator": "host", "loader": "data loader"
}  # fmt: skip


def path_lines(path: CriticalPath | None, paper: Paper) -> Iterator[str]:
    """Its parts and longest contributors; nothing without a path."""
    if path is None or not path.nanoseconds:
        return
    yield ""
    yield styled(f"Critical path of device {path.device}", "bold", paper)
    yield from _parts(path).lines(paper)
    if path.contributors:
        yield ""
        yield styled("Longest on the critical path", "bold", paper)
        yield from _contributors(path).lines(paper)


def _parts(path: CriticalPath) -> Table:
    steps = len(path.steps)
    about = "the chain of dependent work that determined the duration of "
    about += text.count(steps, "step") if steps else "the trace"
    table = Table("", ">time per step" if steps else ">time", ">of the path", about=about)
    for it in path.parts:
        time = text.length(it.nanoseconds / max(1, steps))
        table.add(_KINDS[it.kind], time, text.share(it.nanoseconds / path.nanoseconds))
    return table


def _contributors(path: CriticalPath) -> Table:
    least = _LEAST_SHARE * path.nanoseconds
    shown = [it for it in path.contributors[:_CONTRIBUTORS_SHOWN] if it.nanoseconds >= least]
    names = event_names([it.name for it in shown], _LONGEST_NAME)
    # A line shared by all rows is omitted.
    places_differ = len({it.place for it in shown}) > 1
    table = Table("name", "", ">time", ">of the path", ">times", "?in", "?called at")
    for it in shown:
        table.add(
            names[it.name],
            _SIDES.get(it.kind, ""),
            text.length(it.nanoseconds),
            text.share(it.nanoseconds / path.nanoseconds),
            f"{it.times:,}",
            event_name(it.operator),
            event_name(it.place) if places_differ else "",
        )
    return table
