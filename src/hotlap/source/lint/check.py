"""Check one source text: parse it, run every rule."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from hotlap.source.lint.api import Related, Rule, Violation
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


class Surroundings(Protocol):
    """The files of the project around one file."""

    def join(self, context: Context) -> Context:
        """Join the file with those around it; the file itself if there are none."""

    def file_of(self, module: ast.Module) -> str:
        """The name of the file around it that a module was read from."""


def may_train(source: bytes) -> bool:
    """Whether a source mentions a package that trains with torch: cheap, without false negatives."""
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
        raise Unreadable(f"This cannot be parsed as Python: {error.msg}.", error.lineno or 0) from None
    except ValueError as error:
        raise Unreadable(f"This cannot be parsed as Python: {error}.") from None
    except (RecursionError, MemoryError):
        raise Unreadable("The code is nested too deeply to be parsed.") from None


def check(text: str, rules: Iterable[Rule], surroundings: Surroundings | None = None) -> tuple[Context, list[Hit]]:
    """Run the rules, and return violations in source order; none for a file that does not import torch.

    With ``surroundings`` the rules that look across files see the file joined with others of its project, and find what
    is in it even where only those import torch. Raises :class:`Unreadable` for a source that cannot be parsed or is
    nested too deeply.
    """
    context = Context(parsed(text), text)
    try:
        hits = list(_hits(context, rules, surroundings))
    except RecursionError:
        raise Unreadable("The code is nested too deeply to be checked.") from None
    return context, sorted(hits, key=lambda it: (*position(it.violation.node), it.rule.code))


def _hits(context: Context, rules: Iterable[Rule], surroundings: Surroundings | None) -> Iterator[Hit]:
    joined = surroundings.join(context) if surroundings is not None else context
    for rule in rules:
        seen = joined if rule.across_files else context
        if not seen.imports_torch:
            continue
        for violation in rule.check(seen):
            if joined.tree.owns(violation.node):
                related = tuple(_placed(joined, it, surroundings) for it in violation.related)
                yield Hit(rule, replace(violation, related=related))


def _placed(context: Context, related: Related, surroundings: Surroundings | None) -> Related:
    """Another place with the file that it is in, where that is not the violation's own."""
    if surroundings is None or context.tree.owns(related.node):
        return related
    return replace(related, file=surroundings.file_of(context.tree.module_of(related.node)))


def position(node: ast.AST) -> tuple[int, int]:
    """Line (from 1) and column (from 0, in bytes of UTF-8, as ``ast`` counts) where a node begins."""
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0)


__all__ = ["TRAINING_PACKAGES", "Hit", "Surroundings", "Unreadable", "check", "may_train", "parsed", "position"]
