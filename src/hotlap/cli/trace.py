"""``hotlap trace``: what a profiler's trace says of where the time went, and why."""

from __future__ import annotations

from pathlib import Path

from hotlap.cli import screen
from hotlap.cli.arguments import Parser
from hotlap.errors import TraceError
from hotlap.render.json import document_json
from hotlap.render.trace import traces_report
from hotlap.trace import Breakdown, analyse, compare_ranks, read_trace, trace_files

_DESCRIPTION = """\
Reads traces of torch.profiler (.json or .json.gz), of any version and made anywhere: how long each
device computed, communicated, copied and waited, and what it waited for."""

_EXAMPLES = """\
examples:
  hotlap trace trace.json.gz
  hotlap trace runs/profile              every trace of a folder, for example one a rank
  hotlap trace --json trace.json         one JSON document; times are nanoseconds"""


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap trace", _DESCRIPTION, _EXAMPLES, usage="hotlap trace [options] FILE_OR_FOLDER")
    made.add_argument("path", type=Path, metavar="FILE_OR_FOLDER", help="a trace, or a folder of traces")
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_debug()
    return made


def main(words: list[str], engine: object = None) -> int:
    """Run the command; it makes no trials. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    breakdowns, skipped = read_all(choices.path)
    comparison = compare_ranks(breakdowns)
    if choices.json:
        left_out = [{"path": path, "reason": why} for path, why in skipped]
        document = {"traces": breakdowns, "ranks": comparison, "skipped": left_out}
        screen.say(document_json(document))
    else:
        screen.say(traces_report(breakdowns, skipped, comparison, screen.paper()))
    return 0


def read_all(path: Path, *, kernels: int = 100) -> tuple[list[Breakdown], list[tuple[str, str]]]:
    """Every trace at the path, one after the other in memory; and the files of a folder that are none, with the reason.

    ``kernels`` bounds the rows of each kernel table. Raises :class:`TraceError` where nothing can be read.
    """
    breakdowns: list[Breakdown] = []
    skipped: list[tuple[str, str]] = []
    files = trace_files(path)
    for file in files:
        try:
            breakdowns.append(analyse(read_trace(file), kernels=kernels))
        except TraceError as error:
            if len(files) == 1:
                raise
            skipped.append((str(file), error.what))
    if not breakdowns:
        raise TraceError(
            f"None of the folder's {len(files)} JSON files is a trace that can be read; the first one: {skipped[0][1]}",
            where=str(path),
            remedy="Give the folder that torch.profiler wrote to.",
        )
    return breakdowns, skipped
