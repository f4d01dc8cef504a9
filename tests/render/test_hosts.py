"""The hosts that trials connected to are in every form of the report, if there were any."""

from __future__ import annotations

from collections.abc import Callable

import fakes
import msgspec
import pytest
from rich.console import Console

from hotlap.records import Study
from hotlap.render import text
from hotlap.render.html.page import page
from hotlap.render.markdown import markdown_report
from hotlap.render.material import Material
from hotlap.render.terminal import report

TITLE = "Hosts that trials connected to"


def on_a_terminal(study: Study) -> str:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(report(study))
    return captured.get()


def as_a_page(study: Study) -> str:
    return page(Material(study=study))


@pytest.mark.parametrize("shown", [on_a_terminal, markdown_report, as_a_page])
def test_hosts_are_named(shown: Callable[[Study], str]) -> None:
    study = msgspec.structs.replace(fakes.FINISHED, hosts=("10.1.2.3:5432", "models.example:443"))
    made = shown(study)
    assert TITLE in made and "10.1.2.3:5432" in made and "models.example:443" in made
    assert TITLE not in shown(fakes.FINISHED)


def test_a_bounded_number_of_hosts_is_shown_on_one_line() -> None:
    made = text.hosts(["a\x1b[2J\nb:443", *(f"h{it}:1" for it in range(30))])
    assert len(made) == 21 and made[-1] == "and 11 more"
    assert "\n" not in made[0] and "\x1b" not in made[0]
