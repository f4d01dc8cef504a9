"""The two consoles that commands write to: reports on standard output, progress and errors on standard error."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, TextIO

from hotlap.errors import HotlapError
from hotlap.render import text
from hotlap.render.lines import Paper

# At run time rich is imported by those who use it: that takes longer than some commands take altogether.
if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_USUAL_WIDTH = 80
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
"""Whether remarks are left out."""


def keep_quiet(quiet: bool = True) -> None:
    """Show no remarks from now on, errors alone; or show them again."""
    _quiet.set(quiet)


def out() -> Console:
    """Standard output."""
    return _console(sys.stdout)


def err() -> Console:
    """Standard error."""
    return _console(sys.stderr)


def show(what: RenderableType) -> None:
    """Print a report."""
    out().print(what)


def redraws(console: Console) -> bool:
    """Whether lines can be drawn over: on a terminal that knows how, whatever the environment says of colours."""
    stream = console.file
    return stream.isatty() and console.is_terminal and not console.is_dumb_terminal


def say(line: str) -> None:
    """Print one line as it is, however long, for other programs to read."""
    sys.stdout.write(f"{line}\n")


def document(kind: str, what: object, *, exact: bool = False) -> None:
    """Print records as one JSON document (:func:`hotlap.render.json.document_json`)."""
    from hotlap.render.json import document_json

    say(document_json(kind, what, exact=exact))


def paper() -> Paper:
    """What standard output is, for pages that are laid out without rich."""
    stream = _lenient(sys.stdout)
    plain = os.environ.get("TERM", "") in ("", "dumb", "unknown") or bool(os.environ.get("NO_COLOR"))
    return Paper(
        width=width(),
        colours=bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and not plain),
        ascii_only=not _shows_unicode(stream),
    )


def note(line: str, style: str = "dim", *, always: bool = False) -> None:
    """Print a remark next to the report. Who asked for quiet gets only what must ``always`` be said: why there is no
    report, say."""
    if _quiet.get() and not always:
        return
    from rich.text import Text

    err().print(Text(f"hotlap: {text.one_line(_presentable(line), limit=1000)}", style=style), soft_wrap=True)


def quote_error(traceback: str) -> None:
    """A traceback of ours, on standard error."""
    sys.stderr.write(_presentable(traceback))


def warn_verbatim(lines: Iterable[str]) -> None:
    """Print lines that a decision rests on: cleaned already, with whole paths, and whoever asked for quiet."""
    from rich.text import Text

    for line in lines:
        err().print(Text(f"hotlap: {line}", style="yellow"), soft_wrap=True)


def quote(output: str) -> None:
    """A script's own words, already cleaned, on standard error."""
    from rich.text import Text

    console = err()
    for line in output.split("\n"):
        console.print(Text(f"  | {line}", style="dim"), soft_wrap=True)


def complain(error: HotlapError) -> None:
    """Print an error: what happened and where in one sentence, what to do in another."""
    from rich.text import Text

    where = f" ({text.one_line(_presentable(error.where), limit=300)})" if error.where else ""
    what = Text("hotlap: ", style="bold red").append(
        text.clean(_presentable(error.what), limit=2000) + where, style="not bold default"
    )
    console = err()
    console.print(what, soft_wrap=True)
    console.print(Text(f"        {text.clean(_presentable(error.remedy), limit=1000)}"), soft_wrap=True)


def _presentable(said: str) -> str:
    from hotlap.redact import redacted_text
    from hotlap.render.presentable import shown

    return shown(redacted_text(said))


def _console(stream: TextIO) -> Console:
    from hotlap.cli.console import ReportConsole

    return ReportConsole(_lenient(stream))


def _lenient(stream: TextIO) -> TextIO:
    """The stream, which shows a sign for characters that it cannot write."""
    if isinstance(stream, io.TextIOWrapper) and not _shows_unicode(stream):
        stream.reconfigure(errors="replace")
    return stream


def _shows_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().startswith("utf")


def width() -> int:
    """How wide standard output is: what COLUMNS says, else what the terminal says, else 80."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and 0 < int(said) < 10_000:
        return int(said)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL_WIDTH
    except (OSError, ValueError):
        return _USUAL_WIDTH
