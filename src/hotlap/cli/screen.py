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

# rich is imported where it is used: importing it takes longer than some commands run.
if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_USUAL_WIDTH = 80
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
"""Whether remarks are hidden."""


def keep_quiet(quiet: bool = True) -> None:
    """Hide remarks, but not errors, from now on; or show them again."""
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


def drawn(what: RenderableType) -> str:
    """Draw a report as :func:`show` would print it."""
    console = out()
    with console.capture() as captured:
        console.print(what)
    return captured.get()


def redraws(console: Console) -> bool:
    """Return whether the terminal can redraw lines, whatever its colour settings."""
    stream = console.file
    return stream.isatty() and console.is_terminal and not console.is_dumb_terminal


def say(line: str) -> None:
    """Print one line unchanged, however long, for other programs to read."""
    sys.stdout.write(f"{line}\n")


def document(kind: str, what: object, *, exact: bool = False) -> None:
    """Print records as one JSON document (:func:`hotlap.render.json.document_json`)."""
    from hotlap.render.json import document_json

    say(document_json(kind, what, exact=exact))


def paper() -> Paper:
    """Describe standard output, for pages that are laid out without rich."""
    stream = _lenient(sys.stdout)
    plain = os.environ.get("TERM", "") in ("", "dumb", "unknown") or bool(os.environ.get("NO_COLOR"))
    return Paper(
        width=width(),
        colours=bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and not plain),
        ascii_only=not _shows_unicode(stream),
    )


def note(line: str, style: str = "dim", *, always: bool = False) -> None:
    """Print a remark next to the report.

    With ``--quiet`` only remarks with ``always`` are shown, such as why there is no report.
    """
    if _quiet.get() and not always:
        return
    from rich.text import Text

    err().print(Text(f"hotlap: {text.one_line(_presentable(line), limit=1000)}", style=style), soft_wrap=True)


def quote_error(traceback: str) -> None:
    """Print a traceback of hotlap's own error on standard error."""
    sys.stderr.write(_presentable(traceback))


def warn_verbatim(lines: Iterable[str]) -> None:
    """Print lines needed for a decision, cleaned, with full paths, even with ``--quiet``."""
    from rich.text import Text

    for line in lines:
        err().print(Text(f"hotlap: {line}", style="yellow"), soft_wrap=True)


def quote(output: str) -> None:
    """Print a script's output, already cleaned, on standard error."""
    from rich.text import Text

    console = err()
    for line in output.split("\n"):
        console.print(Text(f"  | {line}", style="dim"), soft_wrap=True)


def complain(error: HotlapError) -> None:
    """Print an error: what happened and where, then what to do."""
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
    """Return the stream; it replaces characters that it cannot encode."""
    if isinstance(stream, io.TextIOWrapper) and not _shows_unicode(stream):
        stream.reconfigure(errors="replace")
    return stream


def _shows_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().startswith("utf")


def width() -> int:
    """Return standard output's width: COLUMNS, else the terminal's width, else 80."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and 0 < int(said) < 10_000:
        return int(said)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL_WIDTH
    except (OSError, ValueError):
        return _USUAL_WIDTH
