"""What the file of a chart must contain, and how all charts are found.

One file is one chart. Its ``order`` is its place among the others, and ``for_page`` makes it from the page's material:
no chart if its data was not measured. It is shown in the section that names it
(:class:`hotlap.render.html.parts.Figure`), or in one of its own.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from hotlap.render.calls import chart_of_calls
from hotlap.render.html.parts import Chart
from hotlap.render.material import Material

_OWN_FILES = frozenset({"api"})


def charts_of(material: Material) -> Iterator[Chart]:
    """All charts with measured data, in the order of the page."""
    for module in _modules():
        yield from (chart_of_calls(material.study, it) for it in module.for_page(material))


@cache
def _modules() -> tuple[ModuleType, ...]:
    import hotlap.render.html.charts as folder

    names = [it.name for it in pkgutil.iter_modules(folder.__path__) if it.name not in _OWN_FILES]
    modules = [importlib.import_module(f"hotlap.render.html.charts.{it}") for it in names]
    return tuple(sorted(modules, key=lambda it: (it.order, it.__name__)))
