"""A small filled chart of non-negative values, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hotlap.render.lines import Paper, styled

_EIGHTHS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_ASCII = " .#"


def area_chart(values: Sequence[float], paper: Paper, *, width: int, height: int = 4, style: str = "") -> Iterator[str]:
    """The lines of the chart from the top, each of at most ``width`` cells; a cell shows the largest of its values."""
    signs = _ASCII if paper.ascii_only else _EIGHTHS
    drawn = list(_fewer(values, width))
    highest = max(drawn, default=0)
    steps = len(signs) - 1
    filled = [round(value / highest * height * steps) if highest else 0 for value in drawn]
    for row in reversed(range(height)):
        cells = (min(max(0, it - row * steps), steps) for it in filled)
        yield styled("".join(map(signs.__getitem__, cells)).rstrip(), style, paper)


def _fewer(values: Sequence[float], count: int) -> Iterator[float]:
    cells = min(count, len(values))
    for cell in range(cells):
        yield max(values[cell * len(values) // cells : (cell + 1) * len(values) // cells])
