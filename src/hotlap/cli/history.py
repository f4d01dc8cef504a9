"""``hotlap history``: all studies of this project. Nothing is measured."""

from __future__ import annotations

from pathlib import Path

from hotlap import api
from hotlap.cli import screen
from hotlap.cli.arguments import Parser
from hotlap.errors import UsageError
from hotlap.history import History, history_of
from hotlap.render.history import history_page, spans_of
from hotlap.render.history_svg import history_svg
from hotlap.render.ratio_plot import plot_lines

_DESCRIPTION = """\
Shows all studies of this project, of tune, lab, profile and check: when, which script, what it gave
with its interval, whether the numbers agreed, the levers kept, torch, machine and git revision.
Ratios of different machines are listed together; they are not comparable."""

_EXAMPLES = """\
examples:
  hotlap history
  hotlap history --plot speedups.svg           the plot as a file: .svg, or .txt for plain text
  hotlap history --json .hotlap                one JSON document; times are seconds"""

_TEXT_WIDTH = 100


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap history", _DESCRIPTION, _EXAMPLES, usage="hotlap history [options] [FOLDER]")
    made.add_argument("folder", nargs="?", type=Path, default=api.STUDIES, help="the folder of studies")
    made.add_argument("--plot", type=Path, metavar="FILE", help="write the plot to this file, .svg or .txt")
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    found = history_of(choices.folder)
    if choices.plot is not None:
        _write(choices.plot, _plot(choices.plot, found))
    if choices.json:
        screen.document("history", found)
    else:
        screen.show(history_page(found))
    return 0


def _plot(path: Path, found: History) -> str:
    if path.suffix == ".svg":
        return history_svg(found)
    if path.suffix == ".txt":
        spans = spans_of(found.entries)
        lines = plot_lines(spans, _TEXT_WIDTH, ascii_only=False) if spans else iter(())
        return "".join(f"{line.rstrip()}\n" for line, _ in lines)
    raise UsageError(
        f"A plot cannot be written to {path}: its name ends in neither .svg nor .txt.",
        remedy="Name it like speedups.svg.",
    )


def _write(path: Path, said: str) -> None:
    try:
        path.write_text(said, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}.", remedy="Name a file that may be written."
        ) from error
