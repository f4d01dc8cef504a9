"""The speedups of all studies as a drawing: one file without scripts, fonts or links, readable in light and dark."""

from __future__ import annotations

from xml.etree import ElementTree

from hotlap.history import History
from hotlap.render import text
from hotlap.render.history import spans_of
from hotlap.render.ratio_plot import place, scale_of

_WIDTH, _ROW, _MARGIN = 800, 26, 36
_NAMES, _RATIOS = 150, 150
_TICKS = (0.1, 0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_LEAST_BETWEEN_TICKS = 34
_STYLE = (
    "svg{background:#fff;color:#1a1a1a;font:13px sans-serif}"
    "@media(prefers-color-scheme:dark){svg{background:#161616;color:#e8e8e8}}"
    "text{fill:currentColor}line,circle{stroke:currentColor;fill:currentColor}"
    ".unclaimed{opacity:.5}.grid{opacity:.2}.one{opacity:.6}"
)


def history_svg(history: History) -> str:
    """The drawing, or a sentence if there is nothing to draw."""
    spans = spans_of(history.entries)
    height = 2 * _MARGIN + _ROW * max(1, len(spans))
    root = ElementTree.Element(
        "svg", {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {_WIDTH} {height}", "role": "img"}
    )
    ElementTree.SubElement(root, "title").text = "Speedup of each plan, with its interval"
    ElementTree.SubElement(root, "style").text = _STYLE
    if not spans:
        _text(root, _WIDTH / 2, height / 2, "No study has a speedup yet.", "middle")
        return _written(root)
    low, high = scale_of(spans)

    def across(ratio: float) -> float:
        return _NAMES + place(ratio, low, high) * (_WIDTH - _NAMES - _RATIOS)

    last = -_LEAST_BETWEEN_TICKS
    for tick in (it for it in _TICKS if low <= it <= high):
        if tick == 1.0 or across(tick) - last >= _LEAST_BETWEEN_TICKS:
            last = round(across(tick))
            _line(root, across(tick), _MARGIN - 8, height - _MARGIN, "one" if tick == 1.0 else "grid")
            _text(root, across(tick), height - _MARGIN + 18, f"{tick:g}x", "middle")
    for row, span in enumerate(spans):
        middle = _MARGIN + _ROW * (row + 0.5)
        group = ElementTree.SubElement(root, "g", {} if span.claimed else {"class": "unclaimed"})
        _text(group, 8, middle + 4, span.name, "start")
        ends = {"x1": f"{across(span.of.low):.1f}", "x2": f"{across(span.of.high):.1f}"}
        ElementTree.SubElement(
            group, "line", {**ends, "y1": f"{middle:.1f}", "y2": f"{middle:.1f}", "stroke-width": "2"}
        )
        for end in (span.of.low, span.of.high):
            _line(group, across(end), middle - 4, middle + 4)
        ElementTree.SubElement(group, "circle", {"cx": f"{across(span.of.value):.1f}", "cy": f"{middle:.1f}", "r": "4"})
        said = f"{text.ratio(span.of.value)} ({text.interval(span.of)})"
        _text(group, _WIDTH - 8, middle + 4, said, "end")
    return _written(root)


def _line(parent: ElementTree.Element, x: float, top: float, bottom: float, kind: str = "") -> None:
    places = {"x1": f"{x:.1f}", "x2": f"{x:.1f}", "y1": f"{top:.1f}", "y2": f"{bottom:.1f}", "stroke-width": "1"}
    ElementTree.SubElement(parent, "line", {**places, **({"class": kind} if kind else {})})


def _text(parent: ElementTree.Element, x: float, y: float, said: str, anchor: str) -> None:
    element = ElementTree.SubElement(parent, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor})
    element.text = said


def _written(root: ElementTree.Element) -> str:
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"
