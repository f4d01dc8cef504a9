"""A text parsed by LibCST, whose nodes can be found by position."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import TypeAlias, TypeVar

import libcst as cst
from libcst import metadata

from hotlap.source.edits.kinds import Span
from hotlap.source.edits.refusals import CannotEdit

Statement: TypeAlias = cst.BaseSmallStatement | cst.BaseCompoundStatement
Block: TypeAlias = cst.Module | cst.IndentedBlock | cst.SimpleStatementSuite
Node = TypeVar("Node", bound=cst.CSTNode)
Range: TypeAlias = tuple[int, int]
"""A range of bytes, without the end."""

# ``ast`` counts the parentheses of these nodes as part of them, LibCST does not.
_WITH_THEIR_PARENTHESES = (cst.Tuple, cst.GeneratorExp)


class Tree:
    """One parsed text. Raises :class:`CannotEdit` if it is not valid Python, or LibCST would change it."""

    def __init__(self, text: str) -> None:
        try:
            with warnings.catch_warnings(action="ignore"):  # about the user's strings, which edits do not touch
                self.syntax = ast.parse(text)
            module = cst.parse_module(text)
        except (SyntaxError, ValueError, cst.ParserSyntaxError, RecursionError) as error:
            raise CannotEdit("not-parsable", f"The file cannot be parsed: {_first_line(error)}.") from None
        if module.code != text:
            raise CannotEdit("not-parsable", "The file cannot be written back unchanged.")
        self.text = text
        self._wrapper = metadata.MetadataWrapper(module, unsafe_skip_copy=True)  # the parser shares no node
        self.module = self._wrapper.module
        self._bytes = text.encode("utf-8")
        self._line_starts = _line_starts(self._bytes)
        self._parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self._ranges: dict[cst.CSTNode, Range] = {}
        self._expressions: dict[Range, cst.BaseExpression] = {}
        self._statements: dict[int, Statement] = {}
        self._collect()

    # -- finding nodes ----------------------------------------------------------------------------

    def expression(self, span: Span) -> cst.BaseExpression:
        """Find the expression at a span. Raises :class:`CannotEdit`."""
        found = self._expressions.get(self._range(span))
        if found is None:
            raise CannotEdit("not-found", f"Line {span.line} holds no expression at column {span.column}.")
        return found

    def call(self, span: Span) -> cst.Call:
        """Find the call at a span. Raises :class:`CannotEdit`."""
        found = self.expression(span)
        if not isinstance(found, cst.Call):
            raise CannotEdit("not-found", f"Line {span.line} holds no call at column {span.column}.")
        return found

    def statement(self, span: Span) -> Statement:
        """Find the statement that begins at a span. Raises :class:`CannotEdit`."""
        found = self._statements.get(self._range(span)[0])
        if found is None:
            raise CannotEdit("not-found", f"No statement begins in line {span.line} at column {span.column}.")
        if isinstance(found, cst.If) and isinstance(self.parent(found), cst.If):
            raise CannotEdit("shape", f"Line {span.line} holds an elif, which is part of another statement.")
        return found

    def _range(self, span: Span) -> Range:
        try:
            return (
                self._line_starts[span.line - 1] + span.column,
                self._line_starts[span.end_line - 1] + span.end_column,
            )
        except IndexError:
            raise CannotEdit("not-found", f"The file has no line {span.end_line}.") from None

    def nodes(self, kind: type[Node]) -> Iterator[Node]:
        """All nodes of a kind, in no particular order."""
        return (it for it in self._parents if isinstance(it, kind))

    # -- asking about nodes -----------------------------------------------------------------------

    def range_of(self, node: cst.CSTNode) -> Range:
        """The bytes that the node covers, without parentheses around it."""
        return self._ranges[node]

    def line_at(self, node: cst.CSTNode) -> tuple[str, int]:
        """The text of the line that the node begins in, and the node's column in characters."""
        start = self.range_of(node)[0]
        begin = max(it for it in self._line_starts if it <= start)
        line = self._bytes[begin:].split(b"\n", 1)[0].rstrip(b"\r")
        return line.decode("utf-8"), len(self._bytes[begin:start].decode("utf-8"))

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self._parents.get(node)

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """All nodes around this one, the innermost first."""
        above = self._parents.get(node)
        while above is not None:
            yield above
            above = self._parents.get(above)

    def block_of(self, statement: Statement) -> Block:
        """The block whose direct part the statement is."""
        for above in self.parents(statement):
            if isinstance(above, (cst.Module, cst.IndentedBlock, cst.SimpleStatementSuite)):
                return above
        raise AssertionError("every statement is in a block")

    def scope_of(self, node: cst.CSTNode) -> metadata.Scope:
        """The scope in which a name at that node is looked up."""
        for it in (node, *self.parents(node)):
            scope = self._scopes.get(it)
            if scope is not None:
                return scope
        return self.module_scope

    @property
    def module_scope(self) -> metadata.Scope:
        """The file's own scope."""
        scope = self._scopes.get(self.module)
        return scope if scope is not None else metadata.GlobalScope()

    @cached_property
    def _scopes(self) -> dict[cst.CSTNode, metadata.Scope | None]:
        return dict(self._wrapper.resolve(metadata.ScopeProvider))

    # -- reading ----------------------------------------------------------------------------------

    def _collect(self) -> None:
        spans = self._wrapper.resolve(metadata.ByteSpanPositionProvider)
        stack: list[cst.CSTNode] = [self.module]
        while stack:
            node = stack.pop()
            for child in node.children:
                self._parents[child] = node
                stack.append(child)
            span = spans.get(node)
            if span is None:
                continue
            place = (span.start, span.start + span.length)
            self._ranges[node] = place
            if isinstance(node, cst.BaseExpression):
                self._expressions.setdefault(self._as_syntax_tree(node, place), node)
            elif isinstance(node, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
                self._statements.setdefault(place[0], node)

    def _as_syntax_tree(self, node: cst.BaseExpression, place: Range) -> Range:
        if not isinstance(node, _WITH_THEIR_PARENTHESES) or not node.lpar:
            return place
        before = "(" + self.module.code_for_node(node.lpar[-1].whitespace_after)
        after = self.module.code_for_node(node.rpar[0].whitespace_before) + ")"
        return place[0] - len(before.encode()), place[1] + len(after.encode())


def _line_starts(text: bytes) -> list[int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _first_line(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg}, line {error.lineno}"
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__
