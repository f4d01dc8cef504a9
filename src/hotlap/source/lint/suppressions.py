"""Suppression comments: ``# noqa``, ``# noqa: HL101``, ``# hotlap: ignore[HL101]``, ``# hotlap: ignore-file``.

Only comments count, not strings that look like one. A comment applies to every line of its statement; in a compound
statement, such as a loop, to its head.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize

from hotlap.source.lint.model.tree import Tree

_NOQA = re.compile(
    r"#\s*noqa(?P<codes>:\s*(?P<list>[A-Z]+\d+(?:[\s,]+[A-Z]+\d+)*))?(?!\w)(?P<rest>\s*:)?", re.IGNORECASE
)
_IGNORE = re.compile(r"#\s*hotlap:\s*ignore(?P<file>-file)?(?:\s*\[(?P<list>[^\]]*)\])?(?![\w-])", re.IGNORECASE)
_CODE = re.compile(r"[A-Z]+\d+", re.IGNORECASE)
_ALL = "HL"


class Suppressions:
    """The comments of one text."""

    def __init__(self, text: str) -> None:
        self._of_file: set[str] = set()
        self._of_lines: dict[int, set[str]] = {}
        if "noqa" not in text.lower() and "hotlap" not in text.lower():
            return
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    self._read(token.string, token.start[0])
        except (tokenize.TokenError, SyntaxError):
            return

    def covers(self, code: str, tree: Tree, node: ast.AST) -> bool:
        """Whether a comment suppresses this code at a node."""
        if any(code.startswith(it) for it in self._of_file):
            return True
        if not self._of_lines:
            return False
        return any(code.startswith(it) for line in _lines(tree, node) for it in self._of_lines.get(line, ()))

    def _read(self, comment: str, line: int) -> None:
        ignored = _IGNORE.search(comment)
        if ignored:
            codes = _codes(ignored["list"])
            if ignored["file"]:
                self._of_file |= codes
            else:
                self._of_lines.setdefault(line, set()).update(codes)
        noqa = _NOQA.search(comment)
        # A colon followed by anything but a list of codes suppresses nothing.
        if noqa and not noqa["rest"]:
            self._of_lines.setdefault(line, set()).update(_codes(noqa["list"]))


def _codes(listed: str | None) -> set[str]:
    """The named codes, including other tools'; all of ours if none is named."""
    return {_ALL} if listed is None else {it.upper() for it in _CODE.findall(listed)}


def _lines(tree: Tree, node: ast.AST) -> range:
    """The lines on which a comment applies to a node."""
    statement = tree.statement(node) if not isinstance(node, ast.Module) else None
    if statement is None:
        return range(1, 2)
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body:
        last = max(statement.lineno, body[0].lineno - 1)
    else:
        last = statement.end_lineno or statement.lineno
    first = min([statement.lineno, *(it.lineno for it in getattr(statement, "decorator_list", []))])
    return range(first, last + 1)
