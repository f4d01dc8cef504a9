"""A file's syntax tree, walked once: parents, nodes by type, and the scope and block of each node."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from copy import copy
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
_SCOPES = frozenset({*FUNCTIONS, ast.ClassDef, ast.Lambda, *COMPREHENSIONS})
# Fields of a function or class that belong to the scope around it.
_OUTSIDE = frozenset({"decorator_list", "returns", "bases", "keywords", "type_params"})
_DEFAULTS = frozenset({"defaults", "kw_defaults"})
_BLOCKS = frozenset({"body", "orelse", "finalbody", "handlers", "cases"})
# Fields that hold no nodes, or nodes that the parser shares among all places (operators, load or store).
_NO_NODES = frozenset(
    {"ctx", "op", "ops", "id", "attr", "name", "rest", "kwd_attrs", "kind", "level", "module", "asname", "is_async",
     "simple", "conversion", "type_comment", "lineno", "tag", "type_ignores"}
)  # fmt: skip


def _children(kind: type[ast.AST]) -> tuple[str, ...]:
    without = {*_NO_NODES}
    if kind in (ast.Constant, ast.MatchSingleton):
        without.add("value")
    if kind in (ast.Global, ast.Nonlocal):
        without.add("names")
    if kind in (ast.arg, ast.keyword):
        without.add("arg")
    return tuple(it for it in kind._fields if it not in without)


_CHILDREN = {it: _children(it) for it in vars(ast).values() if isinstance(it, type) and issubclass(it, ast.AST)}
"""The fields with child nodes, by type of node."""


def word(expression: ast.expr | None) -> str:
    """The last name of ``a.b.c`` or ``f().c``; empty for anything else."""
    match expression:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


class Tree:
    """One parsed file. Nodes are compared by identity; all queries take nodes of this tree.

    ``others`` are the trees of further files of the project. The place of a node is known in all of them; ``of`` lists
    the nodes of this file alone.
    """

    def __init__(self, module: ast.Module, text: str) -> None:
        self.module = module
        self.text = text
        self.others: tuple[Tree, ...] = ()
        self._lines: list[str] | None = None
        self._named_calls: dict[str, list[ast.Call]] = {}
        self._parents: dict[ast.AST, ast.AST] = {}
        self._scopes: dict[ast.AST, Scope] = {}
        self._fields: dict[ast.AST, str] = {}
        self._nodes: dict[type[ast.AST], list[ast.AST]] = {}
        self._sorted: set[type[ast.AST]] = set()
        self._walk(module)

    def joined(self, others: Sequence[Tree]) -> Tree:
        """This file together with others."""
        tree = copy(self)
        tree.others = tuple(others)
        tree._parents, tree._scopes, tree._fields = dict(self._parents), dict(self._scopes), dict(self._fields)
        for it in others:
            tree._parents.update(it._parents)
            tree._scopes.update(it._scopes)
            tree._fields.update(it._fields)
        return tree

    def module_of(self, node: ast.AST) -> ast.Module:
        """The module of a node's file."""
        if not self.others:
            return self.module
        here = self._scopes[node]
        while not isinstance(here, ast.Module):
            here = self._scopes[here]
        return here

    def owns(self, node: ast.AST) -> bool:
        """Whether a node is one of this file."""
        return self.module_of(node) is self.module

    def everywhere(self, kind: type[Node]) -> Iterator[Node]:
        """All nodes of exactly this type, in this file and the others."""
        yield from self.of(kind)
        for it in self.others:
            yield from it.of(kind)

    def calls_of(self, name: str) -> Iterator[ast.Call]:
        """The calls of a name in all files: ``name(...)`` and ``x.name(...)``."""
        for it in (self, *self.others):
            yield from it._calls_by_name().get(name, ())

    def _calls_by_name(self) -> dict[str, list[ast.Call]]:
        if not self._named_calls:
            for call in self.of(ast.Call):
                self._named_calls.setdefault(word(call.func), []).append(call)
        return self._named_calls

    def _walk(self, module: ast.Module) -> None:
        """Walk without recursion, for any depth of nesting; in no particular order."""
        parents, scopes, fields, nodes = self._parents, self._scopes, self._fields, self._nodes
        stack: list[tuple[ast.AST, Scope]] = [(module, module)]
        while stack:
            node, scope = stack.pop()
            scopes[node] = scope
            kind = node.__class__
            if kind in nodes:
                nodes[kind].append(node)
            else:
                nodes[kind] = [node]
            inner: Scope = node if kind in _SCOPES else scope  # type: ignore[assignment]
            for field in _CHILDREN[kind]:
                value = getattr(node, field)
                if not value:
                    continue
                within = scope if inner is node and field in _OUTSIDE else inner
                if value.__class__ is not list:
                    parents[value] = node
                    stack.append((value, within))
                    continue
                if kind is ast.arguments and field in _DEFAULTS:
                    # They are evaluated where the function is defined.
                    within = scopes[parents[node]]
                in_block = field in _BLOCKS
                for item in value:
                    if item is not None:
                        parents[item] = node
                        stack.append((item, within))
                        if in_block:
                            fields[item] = field

    def of(self, kind: type[Node]) -> Iterator[Node]:
        """All nodes of exactly this type, in source order."""
        nodes = self._nodes.get(kind)
        if nodes is None:
            return iter(())
        if kind not in self._sorted:
            self._sorted.add(kind)
            nodes.sort(key=_position)
        return iter(nodes)  # type: ignore[arg-type]

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node around it; None for the module."""
        return self._parents.get(node)

    def field(self, node: ast.AST) -> str:
        """The name of the list of statements (or handlers, or cases) that contains the node; empty for expressions."""
        return self._fields.get(node, "")

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around it, innermost first."""
        parents = self._parents
        above = parents.get(node)
        while above is not None:
            yield above
            above = parents.get(above)

    def within(self, node: ast.AST, outer: ast.AST) -> bool:
        """Whether ``node`` is ``outer`` or inside it."""
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
        """The class that directly contains a method."""
        above = self._parents.get(function)
        return above if isinstance(above, ast.ClassDef) else None

    def loops(self, node: ast.AST) -> Iterator[Loop]:
        """The loops that repeat a node, innermost first, up to the nearest function."""
        child = node
        for above in self.ancestors(node):
            if isinstance(above, LOOPS) and self._repeats(above, child):
                yield above
            if isinstance(above, FUNCTIONS):
                return
            child = above

    def block(self, statement: ast.stmt) -> Block:
        """The list of statements that contains it; that of a ``with`` counts as the one around the ``with``."""
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
        if self.others and not self.owns(node):
            module = self.module_of(node)
            return next(it for it in self.others if it.module is module).source(node, limit)
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


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
