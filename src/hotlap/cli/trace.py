"""``hotlap trace``: analyse a profiler's trace: where the time went, and why."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeVar

import msgspec

from hotlap.cli import screen
from hotlap.cli.answers import add_full_options
from hotlap.cli.arguments import Parser, whole
from hotlap.cli.pager import show_long
from hotlap.diagnose.trace_verdict import TraceVerdict, verdict_of, verdict_of_ranks
from hotlap.errors import TraceError, UsageError
from hotlap.render.brief import brief_text
from hotlap.render.trace import ROWS_SHOWN, traces_report
from hotlap.render.trace_summary import trace_summary
from hotlap.study.layout import JOURNAL
from hotlap.traces import (
    Attribution,
    Breakdown,
    CollectiveLog,
    analyse,
    code_time,
    collective_log,
    compare_collectives,
    compare_ranks,
    detailed,
    graph_rows,
    host_time,
    operators,
    read_trace,
    trace_files,
)

_DESCRIPTION = """\
Reads traces of torch.profiler (.json, plain or packed as .gz, .xz or .zst), of any version and made
anywhere: how long each device computed, communicated, copied and waited, and what it waited for;
without a device, how the host spent its time. Then the critical path, collectives and, of several
ranks, which one arrives last; with `with_stack=True` time by module and source line, with
`profile_memory=True` memory, with `record_shapes=True` FLOP/s. It ends with the main causes and
what to do."""

_EXAMPLES = """\
examples:
  hotlap trace trace.json.gz
  hotlap trace runs/profile              every trace of a folder, for example one a rank
  ssh host cat trace.json | hotlap trace -
  hotlap trace --full trace.json.gz      every table, through the pager
  hotlap trace --rows 40 trace.json.gz   the same with more kernels, modules and source lines
  hotlap trace --json trace.json         one JSON document; times are seconds"""

_STANDARD_INPUT = "-"
_MOST_ROWS = 100
"""Rows of each table in the document, unless more are requested."""

_TRACES_OF_STUDIES = "window"
_Found = TypeVar("_Found")


class _Judged(NamedTuple):
    """A trace's account, its verdict, and its collectives for comparing ranks."""

    breakdown: Breakdown
    verdict: TraceVerdict
    collectives: CollectiveLog


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap trace", _DESCRIPTION, _EXAMPLES, usage="hotlap trace [options] FILE_OR_FOLDER")
    made.add_argument(
        "path",
        type=Path,
        metavar="FILE_OR_FOLDER",
        help="a trace, or a folder of traces; `-` reads one from standard input",
    )
    made.add_argument(
        "--rows",
        type=partial(whole, 1),
        default=ROWS_SHOWN,
        metavar="N",
        help=f"rows of the tables of kernels, operators, modules and source lines (default: {ROWS_SHOWN})",
    )
    made.add_argument(
        "--instances", action="store_true", help="one row per instance of a module instead of one per class"
    )
    add_full_options(made)
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_debug()
    return made


def main(words: list[str], engine: object = None) -> int:
    """Run the command; it makes no trials. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    judged = partial(_judged, most=max(choices.rows, _MOST_ROWS), instances=choices.instances)
    found: list[_Judged]
    skipped: list[tuple[str, str]] = []
    if str(choices.path) == _STANDARD_INPUT:
        found = [_from_standard_input(judged)]
    else:
        found, skipped = _read_each(choices.path, judged)
    breakdowns, verdicts = [it.breakdown for it in found], [it.verdict for it in found]
    comparison = compare_ranks(breakdowns)
    arrivals = compare_collectives([it.collectives for it in found])
    together = verdict_of_ranks(breakdowns, comparison)
    if choices.json:
        document = {
            "traces": breakdowns,
            "ranks": comparison,
            "collectives": arrivals,
            "verdicts": verdicts,
            "verdict_of_ranks": together,
            "skipped": [{"path": path, "reason": why} for path, why in skipped],
        }
        screen.document("trace", document)
    elif not (choices.full or choices.instances or choices.rows != ROWS_SHOWN):
        brief = trace_summary(str(choices.path), breakdowns, skipped, verdicts, together)
        screen.say(brief_text(brief, screen.paper()))
    else:
        verdicts += [together] if together is not None else []
        paper = screen.paper()
        page = traces_report(
            breakdowns, skipped, comparison, paper, verdicts=verdicts, rows=choices.rows, arrivals=arrivals
        )
        show_long(page, paged=not (choices.no_pager or choices.quiet))
    return 0


def _judged(path: Path, *, most: int, instances: bool) -> _Judged:
    """Read a trace with its verdict; without a device, also operators and host time."""
    timeline = read_trace(path, with_inputs=True)
    attribution = Attribution(timeline)
    breakdown, rows = analyse(timeline, kernels=most), operators(timeline, attribution=attribution)
    breakdown = msgspec.structs.replace(
        breakdown,
        code=code_time(attribution, most=most, instances=instances),
        graphs=graph_rows(attribution, most=most),
    )
    if not breakdown.devices:
        breakdown = msgspec.structs.replace(breakdown, operators=rows[:most], host_time=host_time(timeline))
    log = collective_log(timeline)
    return _Judged(detailed(breakdown, timeline, log), verdict_of(breakdown, rows), log)


def _from_standard_input(judged: Callable[[Path], _Judged]) -> _Judged:
    """Read a piped trace through a temporary file, because parts are read twice."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("Standard input is empty.", remedy="Pipe a trace: `hotlap trace - < trace.json`.")
    with TemporaryDirectory(prefix="hotlap-trace-") as folder:
        path = Path(folder) / "trace"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            found = judged(path)
        except TraceError as error:
            raise TraceError(error.what, where="standard input", remedy=error.remedy) from error
    facts = msgspec.structs.replace(found.breakdown.facts, path="standard input")
    return found._replace(
        breakdown=msgspec.structs.replace(found.breakdown, facts=facts),
        verdict=msgspec.structs.replace(found.verdict, path="standard input"),
    )


def read_all(path: Path, *, kernels: int) -> tuple[list[Breakdown], list[tuple[str, str]]]:
    """Read every trace at the path, one in memory at a time.

    Files of a folder that are not traces are returned with the reason, unless hotlap wrote them into a study's folder.

    ``kernels`` bounds the rows of each kernel table. Raises :class:`TraceError` where nothing can be read.
    """
    return _read_each(path, lambda file: analyse(read_trace(file), kernels=kernels))


def _read_each(path: Path, read: Callable[[Path], _Found]) -> tuple[list[_Found], list[tuple[str, str]]]:
    found: list[_Found] = []
    skipped: list[tuple[str, str]] = []
    reasons: list[str] = []
    files = trace_files(path)
    for file in files:
        try:
            found.append(read(file))
        except TraceError as error:
            if len(files) == 1:
                raise
            if not _is_of_a_study(file, path):
                skipped.append((str(file), error.what))
            reasons.append(error.what)
    if not found:
        raise TraceError(
            f"None of the folder's {len(files)} JSON files is a trace that can be read; the first one: {reasons[0]}",
            where=str(path),
            remedy="Give the folder that torch.profiler wrote to.",
        )
    return found, skipped


def _is_of_a_study(file: Path, root: Path) -> bool:
    """Return whether a file belongs to a study and is not a trace of its steps."""
    if file.name.startswith(_TRACES_OF_STUDIES):
        return False
    above = [it for it in file.parents if it == root or root in it.parents]
    return any((it / JOURNAL).is_file() for it in above)
