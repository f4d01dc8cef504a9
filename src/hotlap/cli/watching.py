"""Show the progress of trials that belong to an existing study."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from hotlap.cli import screen
from hotlap.experiment.draft import OnProgress, say_nothing
from hotlap.records import Study
from hotlap.render.live import LiveView


@contextmanager
def watched(choices: argparse.Namespace, found: Study) -> Iterator[OnProgress]:
    """Open a progress display on standard error, unless ``--quiet`` is given."""
    if choices.quiet:
        yield say_nothing
        return
    console = screen.err()
    interactive = screen.redraws(console) and not choices.show_output
    with LiveView(console, found.workload, interactive=interactive) as view:
        yield view.update
