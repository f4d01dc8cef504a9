"""The report of a study as a terminal shows it, without colours."""

from __future__ import annotations

import io

from rich.console import Console

from hotlap.records import Study
from hotlap.render.terminal import report

COLUMNS = 100


def plain(study: Study) -> str:
    """The report as text."""
    page = io.StringIO()
    console = Console(file=page, width=COLUMNS, color_system=None, markup=False, highlight=False, emoji=False)
    console.print(report(study, plan_path=""))
    return page.getvalue().rstrip("\n")
