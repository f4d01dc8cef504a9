"""Every section conforms to what reports rely on."""

from __future__ import annotations

import functools
import importlib
import io
import pkgutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import fakes
import pytest
from materials import full_material, hostile_material
from rich.console import Console, Group, RenderableType

from hotlap.records import Study
from hotlap.render import sections
from hotlap.render.html.page import page
from hotlap.render.material import Material
from hotlap.render.sections.api import markdown_sections, page_sections, terminal_sections

NAMES = sorted({it.name for it in pkgutil.iter_modules(sections.__path__)} - {"api"})
MEDIA = ("terminal", "markdown", "page")
ALWAYS = {"machine", "words"}
"""The parts of every study's report: the machine, and the meaning of the words."""


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"{sections.__name__}.{name}")


def media_of(name: str) -> Iterator[str]:
    module = module_of(name)
    return (it for it in MEDIA if hasattr(module, it) or hasattr(module, "everywhere"))


class Shown:
    """Reports of one material; the page is rendered once."""

    def __init__(self, material: Material) -> None:
        self._material = material

    @functools.cached_property
    def _page(self) -> str:
        return page(self._material)

    def under(self, name: str, medium: str) -> str:
        """Return the part of the report in that section and medium, or an empty text."""
        own = getattr(module_of(name), medium, None) or module_of(name).everywhere
        made = own(self._material)
        if made is None:
            return ""
        if medium == "terminal":
            return as_text(it for section in terminal_sections(self._material) if section.title == made.title
                           for it in section.body)  # fmt: skip
        if medium == "markdown":
            found = [it for it in markdown_sections(self._material) if it.title == made.title]
            return "\n".join(line for it in found for line in it.body)
        return self._page.partition(f'<section id="{name.replace("_", "-")}">')[2].partition("</section>")[0]


def as_text(pieces: Iterable[RenderableType]) -> str:
    console = Console(width=100, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(Group(*pieces))
    return captured.get().strip()


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return Shown(full_material(tmp_path_factory.mktemp("full")))


@pytest.fixture(scope="module")
def empty() -> Shown:
    return Shown(Material(study=Study(workload=fakes.WORKLOAD, status="script-failed"), plan_path=""))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return Shown(hostile_material(tmp_path_factory.mktemp("hostile")))


@pytest.mark.parametrize("name", NAMES)
def test_a_section_shows_what_was_measured(name: str, full: Shown) -> None:
    assert module_of(name).__doc__ and list(media_of(name))
    assert all(full.under(name, it) for it in media_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_shown_if_nothing_was_measured(name: str, empty: Shown) -> None:
    found = {it for it in media_of(name) if empty.under(name, it)}
    assert found == ({it for it in media_of(name) if it != "terminal"} if name in ALWAYS else set())


@pytest.mark.parametrize("name", NAMES)
def test_its_order_is_unique(name: str) -> None:
    orders = [module_of(it).order for it in NAMES]
    assert type(module_of(name).order) is int and orders.count(module_of(name).order) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_section_never_checks_the_kind_of_study(name: str) -> None:
    """What differs between kinds is in their presenters."""
    source = Path(str(module_of(name).__file__)).read_text(encoding="utf-8")
    assert "study.kind" not in source.replace("presenter_of(study.kind)", "")


@pytest.mark.parametrize("name", NAMES)
def test_foreign_text_is_shown_as_text(name: str, hostile: Shown) -> None:
    for medium in media_of(name):
        text = hostile.under(name, medium)
        assert not {"\x1b", "\u202e", "\u2028"} & set(text), medium
        assert medium != "page" or "<img" not in text


def test_sections_are_in_their_order(tmp_path: Path) -> None:
    placed = list(page_sections(full_material(tmp_path)))
    assert [it.order for it in placed] == sorted(it.order for it in placed)
    assert [it.name.replace("-", "_") for it in placed] == sorted(
        (it for it in NAMES if "page" in media_of(it)), key=lambda it: module_of(it).order
    )
