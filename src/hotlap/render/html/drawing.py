"""Draw with Vega-Lite, which vl-convert contains: JavaScript for the page, and static pictures without scripts.
Nothing is downloaded.

Colours are CSS variables of the page, so that one drawing serves light, dark and paper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from hotlap.errors import HotlapError, MissingPackageError
from hotlap.render.html.parts import Specification

_STILL_WIDTH = 680
_PADDING = {"left": 2, "right": 8, "top": 4, "bottom": 2}
PADDING_FOR_LABELS = {**_PADDING, "right": 62}
"""Space for figures at the ends of bars, also on narrow pages."""

LIMIT_IN_SIGHT = 2.0
"""A limit of memory is drawn if the peak is within this factor of it; otherwise it would flatten the curves."""

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_IDENTIFIERS = re.compile(r'(\bid="|url\(#|href="#)')
_ENDS_SCRIPT = re.compile(r"</script|<!--", re.IGNORECASE)

CONFIG: Specification = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "mark": {"aria": False},
    "axis": {
        "aria": False,
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "gridColor": "var(--line)",
        "domainColor": "var(--edge)",
        "tickColor": "var(--edge)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 190,
    },
    "axisX": {"tickCount": {"signal": "max(2, ceil(width / 80))"}, "labelOverlap": True},
    "axisY": {"grid": False},
    "legend": {"disable": True},
    "text": {"color": "var(--ink)", "fontSize": 12},
    "rule": {"color": "var(--ink)"},
}


def specification(**parts: Any) -> Specification:
    """A drawing as wide as its container."""
    sizing = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}, "padding": _PADDING}
    return {"$schema": _SCHEMA, **sizing, "config": CONFIG, **parts}


def colours(legend: Sequence[tuple[str, str]]) -> Specification:
    """The scale of a colour channel: the meaning of each colour."""
    return {"domain": [name for name, _ in legend], "range": [colour for _, colour in legend]}


def still_picture(drawn: Specification, name: str) -> str:
    """The drawing as an SVG element. ``name`` makes the identifiers in it differ from those of other drawings.

    Raises :class:`MissingPackageError` when vl-convert is not installed.
    """
    svg: str = _library().vegalite_to_svg({**drawn, "width": _STILL_WIDTH}, allowed_base_urls=[])
    return _IDENTIFIERS.sub(lambda found: f"{found[1]}{name}-", svg)


@cache
def drawing_code() -> str:
    """The JavaScript of Vega, Vega-Lite and vega-embed, which sets ``window.vegaEmbed``.

    Raises :class:`MissingPackageError` when vl-convert is not installed.
    """
    code: str = _library().javascript_bundle()
    if _ENDS_SCRIPT.search(code):
        raise HotlapError(
            "The drawing library cannot be embedded in a page: its code contains a closing script tag.",
            remedy='Install another version: pip install "hotlap[report]".',
        )
    return code


def _library() -> Any:
    try:
        import vl_convert
    except ImportError as error:
        raise MissingPackageError(
            "The HTML report needs the package vl-convert-python, which is not installed.",
            remedy='pip install "hotlap[report]", or use `hotlap report --markdown`, which needs nothing.',
        ) from error
    return vl_convert
