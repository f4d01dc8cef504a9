"""``hotlap trace``: what a profiler's trace says of where the time went, and why."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from hotlap.cli import screen
from hotlap.cli.arguments import Parser
from hotlap.errors import TraceError, UsageError
from hotlap.render.json import document_json
from hotlap.render.trace import traces_report
from hotlap.study.layout import JOURNAL
from hotlap.trace import Breakdown, analyse, compare_ranks, host_time, operators, read_trace, trace_files

_DESCRIPTION = """\
Reads traces of torch.profiler (.json, plain or packed as .gz, .xz or .zst), of any version and made
anywhere: how long each device computed, communicated, copied and waited, and what it waited for;
without a device, how the host spent its time."""

_EXAMPLES = """\
examples:
  hotlap trace trace.json.gz
  hotlap trace runs/profile              every trace of a folder, for example one a rank
  ssh host cat trace.json | hotlap trace -
  hotlap trace --json trace.json         one JSON document; times are nanoseconds"""

_STANDARD_INPUT = "-"
_OPERATORS = 100
_TRACES_OF_STUDIES = "window"


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap trace", _DESCRIPTION, _EXAMPLES, usage="hotlap trace [options] FILE_OR_FOLDER")
    made.add_argument(
        "path",
        type=Path,
        metavar="FILE_OR_FOLDER",
        help="a trace, or a folder of traces; `-` reads one from standard input",
    )
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_debug()
    return made


def main(words: list[str], engine: object = None) -> int:
    """Run the command; it makes no trials. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    breakdowns: list[Breakdown]
    skipped: list[tuple[str, str]] = []
    if str(choices.path) == _STANDARD_INPUT:
        breakdowns = [_from_standard_input()]
    else:
        breakdowns, skipped = read_all(choices.path)
        breakdowns = [it if it.devices else _with_host(it) for it in breakdowns]
    comparison = compare_ranks(breakdowns)
    if choices.json:
        left_out = [{"path": path, "reason": why} for path, why in skipped]
        document = {"traces": breakdowns, "ranks": comparison, "skipped": left_out}
        screen.say(document_json(document))
    else:
        screen.say(traces_report(breakdowns, skipped, comparison, screen.paper()))
    return 0


def _from_standard_input() -> Breakdown:
    """A trace that is piped in. It is kept in a temporary file meanwhile, since some of it is read twice."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("Nothing is piped in.", remedy="Pipe a trace: `hotlap trace - < trace.json`.")
    with TemporaryDirectory(prefix="hotlap-trace-") as folder:
        path = Path(folder) / "trace"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            breakdown = analyse(read_trace(path))
            breakdown = breakdown if breakdown.devices else _with_host(breakdown)
        except TraceError as error:
            raise TraceError(error.what, where="standard input", remedy=error.remedy) from error
    facts = msgspec.structs.replace(breakdown.facts, path="standard input")
    return msgspec.structs.replace(breakdown, facts=facts)


def _with_host(breakdown: Breakdown) -> Breakdown:
    """With the operators and the host's time, for which a trace is read once more."""
    timeline = read_trace(breakdown.facts.path, with_inputs=True)
    return msgspec.structs.replace(
        breakdown, operators=operators(timeline, most=_OPERATORS), host_time=host_time(timeline)
    )


def read_all(path: Path, *, kernels: int = 100) -> tuple[list[Breakdown], list[tuple[str, str]]]:
    """Every trace at the path, one after the other in memory; and the files of a folder that are none, with the reason,
    unless hotlap wrote them into a study's folder.

    ``kernels`` bounds the rows of each kernel table. Raises :class:`TraceError` where nothing can be read.
    """
    breakdowns: list[Breakdown] = []
    skipped: list[tuple[str, str]] = []
    reasons: list[str] = []
    files = trace_files(path)
    for file in files:
        try:
            breakdowns.append(analyse(read_trace(file), kernels=kernels))
        except TraceError as error:
            if len(files) == 1:
                raise
            if not _is_of_a_study(file, path):
                skipped.append((str(file), error.what))
            reasons.append(error.what)
    if not breakdowns:
        raise TraceError(
            f"None of the folder's {len(files)} JSON files is a trace that can be read; the first one: {reasons[0]}",
            where=str(path),
            remedy="Give the folder that torch.profiler wrote to.",
        )
    return breakdowns, skipped


def _is_of_a_study(file: Path, root: Path) -> bool:
    """Whether a file is one of those that a study is made of, and no trace of its profiled steps."""
    if file.name.startswith(_TRACES_OF_STUDIES):
        return False
    above = [it for it in file.parents if it == root or root in it.parents]
    return any((it / JOURNAL).is_file() for it in above)
