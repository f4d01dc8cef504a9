"""rich's console as commands use it. Imported late: importing rich takes longer than some commands run."""

from __future__ import annotations

from typing import NoReturn, TextIO

from rich.console import Console


class ReportConsole(Console):
    """A console that shows text unchanged and raises when its reader has gone."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(file=stream, markup=False, highlight=False, emoji=False)

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError
