"""What a person who read the code says of each hit."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import msgspec

from bench.lint_precision.corpus import Key
from hotlap.errors import LintError

Verdict = Literal["right", "wrong", "debatable"]
"""``right``: what the rule says is true of this place, and following it helps or does no harm. ``wrong``: it is not
true. ``debatable``: true, but not worth a change, or it depends on what the file does not show."""

FILE = Path(__file__).parent / "labels.jsonl"


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """One label; ``reason`` is what the code around the hit shows."""

    package: str
    version: str
    path: str
    code: str
    line: str
    verdict: Verdict
    reason: str

    @property
    def key(self) -> Key:
        """The hit that it labels."""
        return Key(self.package, self.version, self.path, self.code, self.line)


def read_labels(file: Path = FILE) -> dict[Key, Label]:
    """All labels. Raises :class:`LintError` for a line that is not a label, or that repeats another."""
    found: dict[Key, Label] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            label = msgspec.json.decode(line, type=Label)
        except msgspec.DecodeError as error:
            raise LintError(
                f"{file.name}, line {number}: {error}", remedy=f"A verdict is one of {', '.join(get_args(Verdict))}."
            ) from None
        if label.key in found or not label.reason:
            raise LintError(f"{file.name}, line {number}: labelled before, or without a reason.", remedy="Keep one.")
        found[label.key] = label
    return found
