"""Checking one source text: parse it, ask every rule."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from hotlap.source.lint.api import Rule, Violation
from hotlap.source.lint.context import TRAINING_PACKAGES, Context

_MENTIONS = re.compile(rb"torch|lightning|accelerate")
_LARGEST_BYTES = 5_000_000


class Unreadable(Exception):
    """A source that cannot be checked; ``what`` is one sentence that says why, ``line`` where, from 1 (0: nowhere)."""

    def __init__(self, what: str, line: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.line = line


@dataclass(frozen=True, slots=True)
class Hit:
    """One violation with the rule that found it."""

    rule: Rule
    violation: Violation


def may_train(source: bytes) -> bool:
    """Whether a source mentions any package that trains with torch at all; nearly free, and right when it says no."""
    return _MENTIONS.search(source) is not None


def parsed(text: str) -> ast.Module:
    """A source's syntax tree. Raises :class:`Unreadable`."""
    if len(text) > _LARGEST_BYTES:
        raise Unreadable(f"The source is larger than {_LARGEST_BYTES // 1_000_000} MB and was not read.")
    try:
        with warnings.catch_warnings():
            # Such as invalid escapes in strings: the file's own business.
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        raise Unreadable(f"This is no Python that can be parsed: {error.msg}.", error.lineno or 0) from None
    except ValueError as error:
        raise Unreadable(f"This is no Python that can be parsed: {error}.") from None
    except (RecursionError, MemoryError):
        raise Unreadable("The code is nested too deeply to be parsed.") from None


def check(text: str, rules: Iterable[Rule]) -> tuple[Context, list[Hit]]:
    """Everything that the rules find, in source order; nothing in a file that imports no torch.

    Raises :class:`Unreadable` for a source that cannot be parsed or is nested too deeply.
    """
    context = Context(parsed(text), text)
    if not context.imports_torch:
        return context, []
    try:
        hits = [Hit(rule, it) for rule in rules for it in rule.check(context)]
    except RecursionError:
        raise Unreadable("The code is nested too deeply to be checked.") from None
    return context, sorted(hits, key=lambda it: (*position(it.violation.node), it.rule.code))


def position(node: ast.AST) -> tuple[int, int]:
    """Line (from 1) and column (from 0, in bytes of UTF-8, as ``ast`` counts) where a node begins."""
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0)


__all__ = ["TRAINING_PACKAGES", "Hit", "Unreadable", "check", "may_train", "parsed", "position"]
