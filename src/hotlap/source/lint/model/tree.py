"""A file's syntax tree, walked once: parents, nodes by type, and the scope and block that each node stands in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeAlias, TypeVar

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While
Scope: TypeAlias = (
    ast.Module
    | ast.ClassDef
    | ast.FunctionDef
    | ast.AsyncFunctionDef
    | ast.Lambda
    | ast.ListComp
    | ast.SetComp
    | ast.DictComp
    | ast.GeneratorExp
)
Block: TypeAlias = tuple[ast.AST, str]
"""A list of statements: the node that has it, and the name of its field (``body``, ``orelse`` ...)."""

Node = TypeVar("Node", bound=ast.AST)

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Lambda, *COMPREHENSIONS)
# What belongs to the scope around a function or class, although it stands in its node.
_OUTSIDE = {"decorator_list", "returns", "bases", "keywords", "type_params"}
_SHARED = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


class Tree:
    """One parsed file. Nodes are compared by identity; all answers are about nodes of this very tree."""

    def __init__(self, module: ast.Module, text: str) -> None:
        self.module = module
        self.text = text
        self._lines: list[str] | None = None
        self._parents: dict[ast.AST, ast.AST] = {}
        self._scopes: dict[ast.AST, Scope] = {}
        self._fields: dict[ast.AST, str] = {}
        self._nodes: dict[type[ast.AST], list[ast.AST]] = {}
        self._walk(module)

    def _walk(self, module: ast.Module) -> None:
        """In source order and without recursion, so that no depth of nesting is too much."""
        parents, scopes, fields, nodes = self._parents, self._scopes, self._fields, self._nodes
        stack: list[tuple[ast.AST, Scope]] = [(module, module)]
        while stack:
            node, scope = stack.pop()
            scopes[node] = scope
            nodes.setdefault(node.__class__, []).append(node)
            inner: Scope = node if isinstance(node, _SCOPES) else scope
            children: list[tuple[ast.AST, Scope]] = []
            for field in node._fields:
                value = getattr(node, field, None)
                if not value:
                    continue
                within = scope if field in _OUTSIDE and inner is node else inner
                if isinstance(value, list):
                    for item in value:
                        if isinstance(item, ast.AST) and not isinstance(item, _SHARED):
                            parents[item] = node
                            fields[item] = field
                            children.append((item, within))
                elif isinstance(value, ast.AST) and not isinstance(value, _SHARED):
                    parents[value] = node
                    fields[value] = field
                    children.append((value, within))
            if isinstance(node, ast.arguments):
                # Defaults are evaluated where the function is made.
                outer = scopes[parents[node]]
                defaults = {*node.defaults, *node.kw_defaults}
                children = [(it, outer if it in defaults else within) for it, within in children]
            children.reverse()
            stack.extend(children)

    def of(self, kind: type[Node]) -> Iterator[Node]:
        """All nodes of this very type, in source order."""
        return iter(self._nodes.get(kind, ()))  # type: ignore[arg-type]

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node around it; None for the module."""
        return self._parents.get(node)

    def field(self, node: ast.AST) -> str:
        """The name of the parent's field that the node stands in."""
        return self._fields.get(node, "")

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around it, innermost first."""
        parents = self._parents
        above = parents.get(node)
        while above is not None:
            yield above
            above = parents.get(above)

    def within(self, node: ast.AST, outer: ast.AST) -> bool:
        """Whether ``node`` is ``outer`` or stands in it."""
        return node is outer or any(it is outer for it in self.ancestors(node))

    def scope(self, node: ast.AST) -> Scope:
        """The scope in which a node's names are looked up."""
        return self._scopes[node]

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that the node is or belongs to."""
        here: ast.AST | None = node
        while here is not None and not isinstance(here, ast.stmt):
            here = self._parents.get(here)
        assert here is not None, "only the module belongs to no statement"
        return here

    def function(self, node: ast.AST) -> Function | None:
        """The innermost ``def`` around a node."""
        return next((it for it in self.ancestors(node) if isinstance(it, FUNCTIONS)), None)

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        """The class that a method stands in directly."""
        above = self._parents.get(function)
        return above if isinstance(above, ast.ClassDef) else None

    def loops(self, node: ast.AST) -> Iterator[Loop]:
        """The loops in whose body a node runs again and again, innermost first, up to the nearest function."""
        child = node
        for above in self.ancestors(node):
            if isinstance(above, LOOPS) and self._repeats(above, child):
                yield above
            if isinstance(above, FUNCTIONS):
                return
            child = above

    def block(self, statement: ast.stmt) -> Block:
        """The list of statements that it stands in; that of a ``with`` counts as the one around the ``with``."""
        above = self._parents[statement]
        if isinstance(above, (ast.With, ast.AsyncWith)):
            return self.block(above)
        return above, self._fields[statement]

    def blocks(self, node: ast.AST) -> Iterator[Block]:
        """The blocks around a node, innermost first."""
        child = node
        for above in self.ancestors(node):
            if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                yield above, self._fields[child]
            child = above

    def source(self, node: ast.expr | ast.stmt, limit: int = 60) -> str:
        """The node's own text in one line, shortened to ``limit`` characters."""
        if self._lines is None:
            self._lines = self.text.splitlines()
        if node.end_lineno is None or node.end_col_offset is None or node.lineno > len(self._lines):
            return ""
        if node.lineno == node.end_lineno:
            line = self._lines[node.lineno - 1].encode()
            found = line[node.col_offset : node.end_col_offset].decode(errors="replace")
        else:
            found = self._lines[node.lineno - 1].encode()[node.col_offset :].decode(errors="replace") + " ..."
        found = " ".join(found.split())
        return found if len(found) <= limit else found[: limit - 3] + "..."

    @staticmethod
    def _repeats(loop: Loop, child: ast.AST) -> bool:
        """Whether a direct child of a loop runs in every pass: its body does, a ``while``'s test does."""
        if isinstance(loop, ast.While):
            return child is loop.test or child in loop.body
        return child in loop.body
