"""Every chart conforms to what the page relies on."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import fakes
import pytest
from materials import full_material

from hotlap.render.html import charts
from hotlap.render.html.charts.api import charts_of
from hotlap.render.html.drawing import still_picture
from hotlap.render.material import Material

NAMES = sorted({it.name for it in pkgutil.iter_modules(charts.__path__)} - {"api"})


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"{charts.__name__}.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_a_chart_shows_what_was_measured(name: str, tmp_path: Path) -> None:
    module = module_of(name)
    found = module.for_page(full_material(tmp_path))
    assert module.__doc__ and found
    for it in found:
        assert it.title and it.description.endswith(".") and it.table.rows
        assert all(len(row) == len(it.table.headings) for row in it.table.rows)
        assert still_picture(it.still or it.drawn, it.name).startswith("<svg")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_shown_if_nothing_was_measured(name: str) -> None:
    assert tuple(module_of(name).for_page(Material(study=fakes.SCRIPT_FAILED))) == ()


@pytest.mark.parametrize("name", NAMES)
def test_its_order_is_unique(name: str) -> None:
    orders = [module_of(it).order for it in NAMES]
    assert type(module_of(name).order) is int and orders.count(module_of(name).order) == 1


def test_charts_are_in_their_order(tmp_path: Path) -> None:
    material = full_material(tmp_path)
    wanted = [chart.name for name in sorted(NAMES, key=lambda it: module_of(it).order)
              for chart in module_of(name).for_page(material)]  # fmt: skip
    assert [it.name for it in charts_of(material)] == wanted and len(set(wanted)) == len(wanted)
