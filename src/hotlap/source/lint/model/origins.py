"""The origins of a value: the calls in the file that may have made it, through names, attributes and parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.lint.model import torch_names as known
from hotlap.source.lint.model.calls import Calls
from hotlap.source.lint.model.names import Names
from hotlap.source.lint.model.tree import FUNCTIONS

_DEEPEST = 12


class Origins:
    """Origins in one file. Unlike a kind, an origin is a possibility: one branch that makes the value is enough."""

    def __init__(self, names: Names, calls: Calls) -> None:
        self._names = names
        self._calls = calls

    def of(self, expression: ast.expr | None) -> tuple[ast.Call, ...]:
        """The calls that may have made this value, outermost first; of a wrapper also its argument's.

        ``model`` after ``model = torch.compile(DDP(Net()).to(device))`` comes from all four calls.
        """
        return tuple(self._follow(expression, set(), _DEEPEST))

    def _follow(self, node: ast.expr | None, seen: set[ast.AST], depth: int) -> Iterator[ast.Call]:
        if node is None or node in seen or depth == 0:
            return
        seen.add(node)
        match node:
            case ast.Name():
                for binding in self._names.reaching(node):
                    if binding.how == "assign":
                        yield from self._follow(binding.value, seen, depth - 1)
                    elif isinstance(binding.node, ast.arg):
                        for given in self._calls.given_to(binding.node):
                            yield from self._follow(given, seen, depth - 1)
            case ast.Attribute():
                for value in self._calls.attribute_values(node):
                    yield from self._follow(value, seen, depth - 1)
            case ast.IfExp(body=body, orelse=orelse):
                yield from self._follow(body, seen, depth - 1)
                yield from self._follow(orelse, seen, depth - 1)
            case ast.Call():
                yield node
                for inner in self._within(node):
                    yield from self._follow(inner, seen, depth - 1)

    def _within(self, call: ast.Call) -> Iterator[ast.expr]:
        """The value that a call passes on: a wrapper's or method's module, a function's return value."""
        name = self._names.qualified_name(call.func)
        definition = self._names.definition(call.func)
        if isinstance(definition, FUNCTIONS):
            yield from self._calls.returns(definition)
        elif name == "torch.compile" or name in known.MODULE_WRAPPERS:
            yield from call.args[:1]
        elif isinstance(call.func, ast.Attribute) and call.func.attr in known.KEEPS_KIND and name is None:
            yield call.func.value
