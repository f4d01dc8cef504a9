"""Prepare code for insertion: parse it, write its names as the file imports them, add parentheses where needed."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from typing import Any

import libcst as cst

from hotlap.source.edits.kinds import HOLE, Code
from hotlap.source.edits.refusals import CannotEdit

Resolve = Callable[[str], cst.BaseExpression]
"""How a full dotted name is written at a place in a file."""

_BUILTINS = frozenset(dir(builtins))
# Expressions that bind at least as tightly as an attribute and never need parentheses.
_TIGHT = (
    cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.SimpleString, cst.List, cst.Dict, cst.Set,
    cst.ListComp, cst.SetComp, cst.DictComp, cst.FormattedString,
)  # fmt: skip
_LOOSE = (cst.Yield, cst.NamedExpr, cst.Lambda, cst.GeneratorExp, cst.Tuple, cst.StarredElement)
# Places where any expression but the loosest may appear without parentheses.
_ROOMY = (
    cst.Arg, cst.Assign, cst.AnnAssign, cst.AugAssign, cst.Return, cst.Expr, cst.For, cst.WithItem, cst.Element,
    cst.DictElement, cst.Param, cst.If, cst.While,
)  # fmt: skip


def expression(code: Code, module: cst.Module, resolve: Resolve) -> cst.BaseExpression:
    """Parse code as an expression. Raises :class:`CannotEdit` if it is not one."""
    try:
        parsed = cst.parse_expression(code.text, config=module.config_for_parsing)
    except cst.ParserSyntaxError:
        raise CannotEdit("shape", f"This is not an expression: {code.text}") from None
    written = parsed.visit(_Written(code, resolve))
    if not isinstance(written, cst.BaseExpression):
        raise CannotEdit("shape", f"This is not an expression: {code.text}")
    return written


def statements(code: Code, module: cst.Module, resolve: Resolve) -> tuple[cst.BaseStatement, ...]:
    """Parse code as statements. Raises :class:`CannotEdit` if it cannot be parsed."""
    try:
        parsed = cst.parse_module(code.text.rstrip() + "\n")
    except cst.ParserSyntaxError:
        raise CannotEdit("shape", f"These are not statements: {code.text}") from None
    written = parsed.visit(_Written(code, resolve))
    if any(not isinstance(it, cst.BaseStatement) for it in written.body):
        raise CannotEdit("shape", f"These are not statements: {code.text}")
    return tuple(it for it in written.body if isinstance(it, cst.BaseStatement))


def with_statement(context: Code, module: cst.Module, resolve: Resolve) -> cst.With:
    """Make an empty ``with`` of these context managers."""
    (parsed,) = statements(Code(f"with {context.text}:\n    pass", context.needs, context.knows), module, resolve)
    if not isinstance(parsed, cst.With):
        raise CannotEdit("shape", f"This is not a context manager: {context.text}")
    return parsed


def free_names(code: Code) -> frozenset[str]:
    """The names that the code reads, but neither binds nor lists in ``needs``."""
    try:
        tree = ast.parse(code.text)
    except SyntaxError:
        tree = ast.parse(f"with {code.text}:\n    pass")
    needed = {name.partition(".")[0] for name in code.needs}
    names = [it for it in ast.walk(tree) if isinstance(it, ast.Name)]
    bound = {it.id for it in names if not isinstance(it.ctx, ast.Load)}
    bound |= {it.arg for it in ast.walk(tree) if isinstance(it, ast.arg)}
    bound |= {it.name for it in ast.walk(tree) if isinstance(it, (ast.FunctionDef, ast.ClassDef))}
    for statement in ast.walk(tree):
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            bound |= {(it.asname or it.name).partition(".")[0] for it in statement.names}
    return frozenset(
        {it.id for it in names if isinstance(it.ctx, ast.Load)} - bound - needed - _BUILTINS - {HOLE, *code.knows}
    )


def filled(template: cst.BaseExpression, inside: cst.BaseExpression) -> cst.BaseExpression:
    """Put an expression in the placeholder of a template."""
    result = template.visit(_Filled(inside))
    assert isinstance(result, cst.BaseExpression)
    return result


def holes(template: cst.BaseExpression) -> int:
    """The number of placeholders in a template."""
    stack: list[cst.CSTNode] = [template]
    count = 0
    while stack:
        node = stack.pop()
        count += isinstance(node, cst.Name) and node.value == HOLE
        stack.extend(node.children)
    return count


def in_place_of(new: cst.BaseExpression, old: cst.BaseExpression, around: cst.CSTNode | None) -> cst.BaseExpression:
    """Give the new expression the old one's parentheses, or its own if the surrounding code binds more tightly."""
    if old.lpar and not isinstance(old, (cst.GeneratorExp, cst.Tuple)):
        return new if new.lpar else new.with_changes(lpar=old.lpar, rpar=old.rpar)
    if isinstance(new, _TIGHT) or new.lpar:
        return new
    if isinstance(around, _ROOMY) and not isinstance(new, _LOOSE):
        return new
    if isinstance(around, (cst.Assign, cst.Return, cst.Expr)) and isinstance(new, (cst.Lambda, cst.Tuple)):
        return new
    return parenthesised(new)


def parenthesised(it: cst.BaseExpression) -> cst.BaseExpression:
    return it.with_changes(lpar=[cst.LeftParen(), *it.lpar], rpar=[*it.rpar, cst.RightParen()])


def dotted(node: cst.CSTNode) -> str:
    """Return ``a.b.c`` for a chain of names; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return ""
    return ".".join(reversed([*parts, node.value]))


def same_code(one: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether two pieces of code are equal apart from formatting."""
    return _dump(one) == _dump(other)


def _dump(node: cst.CSTNode) -> str:
    return ast.dump(ast.parse(cst.Module(body=()).code_for_node(node).strip()))


class _Written(cst.CSTTransformer):
    """Write needed names as the file imports them."""

    def __init__(self, code: Code, resolve: Resolve) -> None:
        super().__init__()
        self._needs = frozenset(code.needs)
        self._resolve = resolve

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        name = dotted(original_node)
        # The last part of a chain is a Name node too, but is not looked up.
        return self._resolve(name) if name in self._needs else updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self._resolve(original_node.value) if original_node.value in self._needs else updated_node


class _Filled(cst.CSTTransformer):
    """Put an expression in the placeholder, in parentheses where the surrounding code binds more tightly."""

    def __init__(self, inside: cst.BaseExpression) -> None:
        super().__init__()
        self._inside = inside
        self._around: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        self._around.append(node)
        return True

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Any:
        self._around.pop()
        if not isinstance(original_node, cst.Name) or original_node.value != HOLE:
            return updated_node
        around = self._around[-1] if self._around else None
        inside = self._inside
        roomy = isinstance(around, _ROOMY) and not isinstance(inside, _LOOSE)
        return inside if isinstance(inside, _TIGHT) or inside.lpar or roomy else parenthesised(inside)


def unindented(lines: Sequence[cst.EmptyLine]) -> tuple[cst.EmptyLine, ...]:
    """Drop the lines from the last blank one on, whose comments belong to the next statement."""
    last_blank = max((number for number, it in enumerate(lines) if it.comment is None), default=-1)
    return tuple(lines[: last_blank + 1])
