"""Banned phrases occur neither in the sources nor in the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BANNED = {
    "the script as it is": "write: the unmodified script",
    "anew": "write: again",
    "vouch": "a program does not vouch; say what the measurement supports",
    "samples a second": "write: samples per second",
    "put right": "write: fixed",
    "dearest": "write: costliest",
    "of its own accord": "write: by itself",
    "comes to rest": "write: settles or ends",
    "doorways": "write: patched functions",
}


def texts() -> Iterator[Path]:
    yield ROOT / "README.md"
    yield ROOT / "CONTRIBUTING.md"
    for folder, ending in (("src", "*.py"), ("docs/recipes", "*.md"), ("docs/extending", "*.md")):
        yield from (ROOT / folder).rglob(ending)
    yield from (ROOT / "docs").glob("*.md")


@pytest.mark.parametrize("phrase", BANNED)
def test_phrase_is_not_used(phrase: str) -> None:
    pattern = re.compile(r"\b" + r"\s+".join(map(re.escape, phrase.split())) + r"\b", re.IGNORECASE)
    found = [str(it.relative_to(ROOT)) for it in texts() if pattern.search(it.read_text(encoding="utf-8"))]
    assert not found, f"{phrase!r}: {BANNED[phrase]}"


def test_shares_are_written_with_a_space() -> None:
    """A figure has one form everywhere: ``hotlap.wording.share`` writes ``1 %``, a percent format writes ``1.0%``."""
    # A style sheet needs the sign next to the figure, and a template of a script is not our text.
    excepted = {"notebook.py"}
    found = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        if path.name not in excepted and re.search(r"\{[^{}]*:\.\d%\}", path.read_text(encoding="utf-8"))
    ]
    assert not found
