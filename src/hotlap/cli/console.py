"""rich's console as commands use it. Imported late: rich takes longer to import than some commands take altogether."""

from __future__ import annotations

from typing import NoReturn, TextIO

from rich.console import Console


class ReportConsole(Console):
    """Shows text as it is, and leaves it to the caller to do something about a reader who has left."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(file=stream, markup=False, highlight=False, emoji=False)

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError
