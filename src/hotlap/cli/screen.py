"""The two consoles that commands write to: reports on standard output, progress and errors on standard error."""

from __future__ import annotations

import io
import sys
from typing import NoReturn, TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from hotlap.errors import HotlapError
from hotlap.render import text


def out() -> Console:
    """Standard output."""
    return _console(sys.stdout)


def err() -> Console:
    """Standard error."""
    return _console(sys.stderr)


def show(what: RenderableType) -> None:
    """Print a report."""
    out().print(what)


def say(line: str) -> None:
    """Print one line as it is, however long, for other programs to read."""
    sys.stdout.write(f"{line}\n")


def note(line: str, style: str = "dim") -> None:
    """Print a remark beside the report."""
    err().print(Text(f"hotlap: {text.one_line(line, limit=1000)}", style=style), soft_wrap=True)


def quote(output: str) -> None:
    """A script's own words, already cleaned, on standard error."""
    console = err()
    for line in output.split("\n"):
        console.print(Text(f"  | {line}", style="dim"), soft_wrap=True)


def complain(error: HotlapError) -> None:
    """Print an error: what happened and where in one sentence, what to do in another."""
    where = f" ({text.one_line(error.where, limit=300)})" if error.where else ""
    what = Text("hotlap: ", style="bold red").append(
        text.clean(error.what, limit=2000) + where, style="not bold default"
    )
    console = err()
    console.print(what, soft_wrap=True)
    console.print(Text(f"        {text.clean(error.remedy, limit=1000)}"), soft_wrap=True)


class _Console(Console):
    """A console that leaves it to the caller to do something about a reader who has left."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def _console(stream: TextIO) -> Console:
    if isinstance(stream, io.TextIOWrapper) and not (stream.encoding or "").lower().startswith("utf"):
        stream.reconfigure(errors="replace")
    return _Console(file=stream, markup=False, highlight=False, emoji=False)
