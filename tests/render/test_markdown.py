"""A study as Markdown: how a pull request shows it, and what is escaped."""

from __future__ import annotations

import re
from collections.abc import Callable

import fakes
import msgspec
import pytest
from markdown_it import MarkdownIt

from hotlap.records import Costs, Estimate, Finding, Price, Study
from hotlap.render import text
from hotlap.render.markdown import markdown_report

ATTACK = (
    "</details><script>alert(1)</script> [x](javascript:alert(1)) ![i](http://x) `a` ``b`` | pipe | @team #12 **bold** "
    "\\` <!-- \x1b[2J\u202e\n# heading\n- item"
)


def shown(markdown: str) -> str:
    """Convert Markdown to HTML as GitHub does: tables, and raw HTML unchanged."""
    html: str = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown)
    return html


@pytest.mark.parametrize("name", [it for it in fakes.STUDIES if it != "hostile"])
def test_report(name: str, matches_snapshot: Callable[[str, str], bool]) -> None:
    assert matches_snapshot(f"{name}-markdown", markdown_report(fakes.STUDIES[name]))


@pytest.mark.parametrize("name", fakes.STUDIES)
def test_tags_are_closed_and_tables_are_complete(name: str) -> None:
    made = markdown_report(fakes.STUDIES[name])
    assert made.count("<details>") == made.count("</details>") == made.count("<summary>")
    assert re.search(r"</summary>\n(?!\n)", made) is None, "Markdown needs an empty line there"
    table: list[str] = []
    for line in [*made.split("\n"), ""]:
        if line.startswith("|"):
            table.append(line)
        elif table:
            assert len({len(re.findall(r"(?<!\\)\|", it)) for it in table}) == 1, table
            table = []


def test_foreign_text_is_escaped() -> None:
    attacked = msgspec.structs.replace(
        fakes.FINISHED,
        identifier=ATTACK,
        hotlap_version=ATTACK,
        workload=msgspec.structs.replace(fakes.WORKLOAD, target=ATTACK, arguments=(ATTACK,)),
        findings=(
            Finding(rule=ATTACK, share=fakes.estimate(0.1, 0.1), title=ATTACK, evidence=(ATTACK,), remedy=ATTACK),
        ),
        machine=msgspec.structs.replace(fakes.MACHINE, processor=ATTACK, library_versions=((ATTACK, ATTACK),)),
        outcomes=tuple(
            msgspec.structs.replace(it, lever=f"{ATTACK}{number}") for number, it in enumerate(fakes.OUTCOMES)
        ),
        warnings=(ATTACK,),
    )
    made = markdown_report(attacked)
    html = shown(made)
    assert "\x1b" not in made and "\u202e" not in made
    assert set(re.findall(r"<([a-z0-9]+)[ >]", html)) <= {
        "h3", "p", "strong", "code", "pre", "ul", "li", "details", "summary",
        "table", "thead", "tbody", "tr", "th", "td",
    }  # fmt: skip
    assert html.count("<details>") == html.count("</details>") == made.count("<summary>")
    assert "<strong>bold" not in html
    assert "@team" not in re.sub(r"<code>.*?</code>|<pre>.*?</pre>", "", html, flags=re.DOTALL)


@pytest.mark.parametrize(
    "foreign", ["a | b", "- x", "1. x", "+ x", "= x", "# x", "> x", "*a* _b_ ~~c~~ `d`", "a\\|b", "&lt;"]
)
def test_a_cell_shows_the_original_text(foreign: str) -> None:
    html = shown(f"| a |\n|---|\n| {text.markdown(foreign)} |\n")
    cell = re.search(r"<td>(.*)</td>", html)
    assert cell is not None
    plain = re.sub("<!-- -->", "", cell[1])
    for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        plain = plain.replace(entity, sign)
    assert plain == foreign


@pytest.mark.parametrize("foreign", ["- x", "1. x", "+ x", "# x", "> x", "=====", "***"])
def test_a_line_stays_a_paragraph(foreign: str) -> None:
    assert re.fullmatch(r"<p>[^<]*(?:<!-- -->)?[^<]*</p>\n", shown(text.markdown(foreign)))


def test_money_is_at_the_top_if_a_price_was_given() -> None:
    costs = Costs(
        confidence=0.95,
        samples_per_step=32,
        seconds_per_sample_before=Estimate(value=0.0066, low=0.0066, high=0.0066),
        price=Price(per_hour=2.5, currency="EUR"),
        million_before=Estimate(value=4.6, low=4.6, high=4.6, unit="EUR"),
    )
    above = markdown_report(fakes.FINISHED, costs=costs).split("<details>")[0]
    assert "A million samples cost 4.60 EUR" in above
    assert "EUR" not in markdown_report(fakes.FINISHED)


def test_an_empty_study() -> None:
    assert markdown_report(Study(workload=fakes.WORKLOAD)).startswith("### hotlap: `train.py --epochs 1`")
