"""Pieces of Markdown, as GitHub and GitLab show it. A script's text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hotlap.render import text


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """``>`` before a heading aligns its column to the right; every cell is escaped."""
    yield f"| {' | '.join(text.markdown(it.removeprefix('>')) for it in headings)} |"
    yield f"|{'|'.join('--:' if it.startswith('>') else '---' for it in headings)}|"
    for row in rows:
        yield f"| {' | '.join(map(text.markdown, row))} |"


def sentence(words: str) -> Iterator[str]:
    """A paragraph."""
    yield text.markdown(words)


def bullets(lines: Iterable[str]) -> Iterator[str]:
    """A list."""
    return (f"- {text.markdown(it)}" for it in lines)


def code(words: str) -> str:
    """A command or a path as code, even with backticks in it."""
    shown = text.one_line(words, limit=1000)
    fence = "`" * (_longest_run(shown) + 1)
    room = " " if "`" in shown else ""
    return f"{fence}{room}{shown}{room}{fence}"


def block(words: str, language: str = "") -> list[str]:
    """Several verbatim lines; the fence is longer than any run of backticks in them."""
    fence = "`" * max(3, _longest_run(words) + 1)
    return [f"{fence}{language}", *words.split("\n"), fence]


def _longest_run(words: str) -> int:
    runs = [0]
    for character in words:
        runs.append(runs[-1] + 1 if character == "`" else 0)
    return max(runs)
