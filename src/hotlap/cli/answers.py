"""Print a command's answer: one screen, or with ``--full`` the whole report, in a pager where that helps."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from hotlap.cli import screen
from hotlap.cli.pager import show_long
from hotlap.render.brief import Brief, brief_text

if TYPE_CHECKING:
    from rich.console import RenderableType


def add_full_options(group: argparse._ActionsContainer) -> None:
    """Add ``--full`` and ``--no-pager``."""
    group.add_argument("--full", action="store_true", help="print the whole report (default: the answer on one screen)")
    group.add_argument(
        "--no-pager", action="store_true", help="do not start a pager for the whole report (HOTLAP_PAGER, PAGER)"
    )


def add_no_pager(group: argparse._ActionsContainer) -> None:
    """Add ``--no-pager`` to a command that prints a long list."""
    group.add_argument("--no-pager", action="store_true", help="do not start a pager (HOTLAP_PAGER, PAGER)")


def show_list(choices: argparse.Namespace, listed: str) -> None:
    """Print a list, through the pager where standard output is a terminal."""
    show_long(listed, paged=not (choices.no_pager or choices.quiet))


def show_answer(choices: argparse.Namespace, brief: Callable[[], Brief], full: Callable[[], RenderableType]) -> None:
    """Print the brief or, with ``--full``, the whole report.

    What is printed does not depend on whether standard output is a terminal; only the pager does.
    """
    if not choices.full:
        screen.say(brief_text(brief(), screen.paper()))
        return
    show_long(screen.drawn(full()), paged=not (choices.no_pager or choices.quiet))
