"""The list of benchmarks names all existing results and no others, and what is said of their hardware is true."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from docs_blocks import ROOT

BENCHMARKS = ROOT / "docs" / "benchmarks"
LISTED = [it for it in (BENCHMARKS / "README.md").read_text(encoding="utf-8").splitlines() if it.startswith("|")]
ROWS = [line.strip("|").split("|") for line in LISTED[2:]]


@pytest.mark.parametrize("row", ROWS, ids=[it[0].strip() for it in ROWS])
def test_every_result_that_is_listed_is_there(row: list[str]) -> None:
    result = row[-1].strip()
    named = re.fullmatch(r"`([a-z-]+(?:\.md|/))`", result)
    assert named or result.startswith("not measured yet"), result
    assert not named or (BENCHMARKS / named[1]).exists()


PAGES = sorted(it for it in BENCHMARKS.rglob("*.md") if it.name != "README.md")
OF_THE_BENCHMARKS, OF_THE_PROJECT = BENCHMARKS / "README.md", ROOT / "README.md"


def machine_of(page: Path) -> str:
    """The machine that a result was measured on, as its document names it."""
    name = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["machine"]
    assert isinstance(name, str)
    return name


@pytest.mark.parametrize("page", PAGES, ids=lambda it: it.relative_to(BENCHMARKS).as_posix())
def test_every_result_is_listed_with_its_machine(page: Path) -> None:
    named = {row[-1].strip().strip("`") for row in ROWS}
    top = page.relative_to(BENCHMARKS).parts[0]
    assert top in named or f"{top}/" in named
    assert machine_of(page) in page.read_text(encoding="utf-8")


def test_readmes_say_which_figures_exist_for_which_hardware() -> None:
    """As the results do: change the sentences once there is one of a real accelerator."""
    machines = {page: machine_of(page) for page in PAGES}
    simulated = [page for page, it in machines.items() if "a simulated" in it]
    real = [page for page, it in machines.items() if "no accelerator" not in it and page not in simulated]
    for readme in (OF_THE_PROJECT, OF_THE_BENCHMARKS):
        text = re.sub(r"\s+", " ", readme.read_text(encoding="utf-8"))
        assert ("none is from a real accelerator" in text) == (not real), readme
        assert [it.name for it in simulated if it.name not in text] == [], readme


LINK = re.compile(r"\]\(([^)#:]*benchmarks/[^)#:]*)(?:#[^)]*)?\)")


@pytest.mark.parametrize(
    "page", [OF_THE_PROJECT, *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda it: it.relative_to(ROOT).as_posix()
)
def test_links_to_results_lead_to_one(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [it for it in links if not (page.parent / it).exists()] == []
