"""Arguments of a call: by name, by position, or from a dictionary after ``**``."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from hotlap.source.lint.model.names import Binding, Names
from hotlap.source.lint.model.tree import Tree

_CHANGES = frozenset({"update", "setdefault", "pop", "popitem", "clear", "__setitem__"})


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a call.

    ``unknown`` means that it may or may not be passed, or that its value is not visible: rules then stay silent.
    ``through`` is the entry of a keyword dictionary that passes it: the value is there, not at the call.
    """

    state: Literal["given", "absent", "unknown"]
    value: ast.expr | None = None
    through: ast.Dict | ast.Call | None = None

    @property
    def given(self) -> bool:
        """Whether it is certainly passed, with a value in the file."""
        return self.state == "given"

    @property
    def absent(self) -> bool:
        """Whether it is certainly not passed."""
        return self.state == "absent"


_ABSENT = Argument("absent")
_UNKNOWN = Argument("unknown")


class Arguments:
    """The arguments of calls, and simple values followed to where they were assigned."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names

    def argument(self, call: ast.Call, name: str, position: int | None = None) -> Argument:
        """The argument of this name, or at this position (from 0) where the function takes it by position too."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return Argument("given", keyword.value)
        if position is not None:
            before = call.args[: position + 1]
            if any(isinstance(it, ast.Starred) for it in before):
                return _UNKNOWN
            if position < len(call.args):
                return Argument("given", call.args[position])
        for keyword in call.keywords:
            if keyword.arg is None:
                found = self._in_dictionary(keyword.value, name)
                if not found.absent:
                    return found
        return _ABSENT

    def has_unknown(self, call: ast.Call) -> bool:
        """Whether a call has arguments that cannot be listed: ``*args``, or a ``**kwargs`` that is not known."""
        if any(isinstance(it, ast.Starred) for it in call.args):
            return True
        unpacked = [it.value for it in call.keywords if it.arg is None]
        return any(self._in_dictionary(it, "\0").state == "unknown" for it in unpacked)

    def constant(self, expression: ast.expr | None) -> object:
        """The value of a literal, or of a name that was assigned one; ``...`` where it is not known.

        A name of the module that some function may change, or that is parsed from a command line, is not known.
        """
        found = self._names.value(expression)
        if (
            isinstance(found, ast.UnaryOp)
            and isinstance(found.op, ast.USub)
            and isinstance(found.operand, ast.Constant)
        ):
            number = found.operand.value
            return -number if isinstance(number, (int, float)) else ...
        return found.value if isinstance(found, ast.Constant) else ...

    def _in_dictionary(self, expression: ast.expr, name: str) -> Argument:
        """The entry of a dictionary that is passed by ``**``."""
        binding: Binding | None = None
        if isinstance(expression, ast.Name):
            bindings = self._names.reaching(expression)
            if len(bindings) != 1 or bindings[0].how != "assign" or bindings[0].value is None:
                return _UNKNOWN
            binding = bindings[0]
            expression = binding.value  # type: ignore[assignment]
        found = self._entry(expression, name)
        return self._as_changed(binding, name, found) if binding is not None else found

    def _entry(self, expression: ast.expr, name: str) -> Argument:
        if isinstance(expression, ast.Dict):
            result = _ABSENT
            for key, value in zip(expression.keys, expression.values, strict=True):
                if key is None:
                    inner = self._in_dictionary(value, name)
                    result = result if inner.absent else inner
                elif not isinstance(key, ast.Constant):
                    result = _UNKNOWN
                elif key.value == name:
                    result = Argument("given", value, expression)
            return result
        if isinstance(expression, ast.Call) and self._names.qualified_name(expression.func) == "builtins.dict":
            if expression.args:
                return _UNKNOWN
            found = self.argument(expression, name)
            return Argument("given", found.value, expression) if found.given else found
        return _UNKNOWN

    def _as_changed(self, binding: Binding, name: str, found: Argument) -> Argument:
        """The argument if the dictionary is changed, or passed on, after its creation."""
        for use in self._tree.of(ast.Name):
            if use.id != binding.name or not isinstance(use.ctx, ast.Load) or binding not in self._names.reaching(use):
                continue
            match self._tree.parent(use):
                case ast.keyword(arg=None) | ast.Dict():
                    continue
                case ast.Subscript(ctx=ast.Load()) | ast.Compare():
                    continue
                case ast.Subscript(slice=ast.Constant(value=key)):
                    if key == name:
                        return _UNKNOWN
                case ast.Attribute(attr=attribute) if attribute not in _CHANGES:
                    continue
                case _:
                    return _UNKNOWN
        return found
