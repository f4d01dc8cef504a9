"""``--help`` on terminals of any width."""

from __future__ import annotations

import importlib

import pytest

from hotlap.cli.arguments import fitted
from hotlap.cli.main import COMMANDS

TEXT = """\
Runs the script unmodified, measures where each step's time goes, and
writes a plan to train with. The kinds are these:

  one    the first of them, in a sentence that is rather long

examples:
  hotlap tune train.py      everything after the script is the script's own
                            and is passed to it unchanged
  hotlap tune --quick train.py"""


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_of_help_is_wider_than_the_terminal(command: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = importlib.import_module(f"hotlap.cli.{command}").parser().format_help()
    assert [it for it in shown.splitlines() if len(it) > width] == []


def test_a_text_that_fits_is_left_as_it_is() -> None:
    assert fitted(TEXT, 100) == TEXT


def test_paragraphs_are_filled_and_comments_move_below_their_commands() -> None:
    assert (
        fitted(TEXT, 50)
        == """\
Runs the script unmodified, measures where each
step's time goes, and writes a plan to train with.
The kinds are these:

  one
      the first of them, in a sentence that is
      rather long

examples:
  hotlap tune train.py
      everything after the script is the script's
      own
      and is passed to it unchanged
  hotlap tune --quick train.py"""
    )
