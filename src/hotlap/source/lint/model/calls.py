"""Who calls what: calls by name, the functions of this file that they reach, and classes with their bases."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from hotlap.source.lint.model import torch_names as known
from hotlap.source.lint.model.names import Names
from hotlap.source.lint.model.tree import FUNCTIONS, Function, Scope, Tree

_DEEPEST = 12


class Calls:
    """The calls of one file."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self._by_name: dict[str, list[ast.Call]] = {}
        self._by_method: dict[str, list[ast.Call]] = {}
        self._by_definition: dict[ast.AST, list[ast.Call]] | None = None
        self._returns: dict[ast.AST, list[ast.expr]] | None = None
        self._attributes: dict[tuple[ast.AST, str], list[ast.expr]] | None = None
        self._bases: dict[ast.ClassDef, frozenset[str]] = {}
        self._used: dict[tuple[Scope | None, str], set[str]] | None = None
        for call in tree.of(ast.Call):
            if isinstance(call.func, ast.Attribute):
                self._by_method.setdefault(call.func.attr, []).append(call)
            for name in names.qualified_names(call.func):
                self._by_name.setdefault(name, []).append(call)

    def named(self, *qualified: str) -> Iterator[ast.Call]:
        """Calls of these functions or classes by full name, those of one name in source order.

        A call whose function may be one of several things is among the calls of each.
        """
        for name in qualified:
            yield from self._by_name.get(name, ())

    def names_called(self) -> Iterable[str]:
        """The full names of everything that is called."""
        return self._by_name

    def methods(self, *attributes: str) -> Iterator[tuple[ast.Call, ast.Attribute]]:
        """Calls ``x.name(...)`` by the last name, whatever x is; with the ``x.name`` that is called."""
        for attribute in attributes:
            for call in self._by_method.get(attribute, ()):
                assert isinstance(call.func, ast.Attribute)
                yield call, call.func

    # -- functions and classes of this file -------------------------------------------------------

    def callee(self, call: ast.Call) -> Function | None:
        """The function of this file that a call runs: by name, as a method, or as a module's ``forward``."""
        definition = self._names.definition(call.func)
        if isinstance(definition, FUNCTIONS):
            return definition
        if isinstance(call.func, ast.Attribute):
            owner = self.instance_class(call.func.value)
            if owner is not None:
                return self.method(owner, call.func.attr)
        owner = self.instance_class(call.func) if definition is None else None
        return self.method(owner, "forward") if owner is not None else None

    def callers(self, function: ast.AST) -> Sequence[ast.Call]:
        """The calls in this file that are known to run a function."""
        if self._by_definition is None:
            self._by_definition = {}
            for call in self._tree.of(ast.Call):
                target = self.callee(call)
                if target is not None:
                    self._by_definition.setdefault(target, []).append(call)
        return self._by_definition.get(function, ())

    def method(self, owner: ast.ClassDef, name: str) -> Function | None:
        """A method of a class of this file, or of its bases in this file."""
        return self._method(owner, name, _DEEPEST)

    def base_names(self, definition: ast.ClassDef) -> frozenset[str]:
        """Full names of the classes that a class derives from, through those of this file."""
        if definition not in self._bases:
            self._bases[definition] = frozenset()
            found: set[str] = set()
            for base in definition.bases:
                found |= self._names.qualified_names(base)
                own = self._names.definition(base)
                if isinstance(own, ast.ClassDef) and own is not definition:
                    found |= self.base_names(own)
            self._bases[definition] = frozenset(found)
        return self._bases[definition]

    def classes_of(self, *qualified: str) -> Iterator[ast.ClassDef]:
        """The classes of this file that derive from one of these."""
        wanted = set(qualified)
        return (it for it in self._tree.of(ast.ClassDef) if self.base_names(it) & wanted)

    def returns(self, function: Function) -> Sequence[ast.expr]:
        """What a function's ``return`` statements give back; empty where it gives back nothing."""
        if self._returns is None:
            self._returns = {}
            for it in self._tree.of(ast.Return):
                if it.value is not None:
                    self._returns.setdefault(self._tree.scope(it), []).append(it.value)
        return self._returns.get(function, ())

    def instance_class(self, expression: ast.expr) -> ast.ClassDef | None:
        """The class of this file that an expression is an instance of: ``self``, ``Net().to(device)``, ``self.net``."""
        return self._instance(expression, _DEEPEST)

    def attribute_values(self, attribute: ast.Attribute) -> Sequence[ast.expr]:
        """What the class around ``self.x`` assigns to it anywhere; empty where something else may be bound to it."""
        owner = self._owner(attribute.value)
        return self._assigned().get((owner, attribute.attr), ()) if owner is not None else ()

    def given_to(self, parameter: ast.arg) -> Sequence[ast.expr]:
        """What the calls in this file give to a parameter; empty where that is not known of all of them."""
        arguments = self._tree.parent(parameter)
        function = self._tree.parent(arguments) if arguments is not None else None
        if not isinstance(arguments, ast.arguments) or not isinstance(function, FUNCTIONS):
            return ()
        positions = [*arguments.posonlyargs, *arguments.args]
        index = positions.index(parameter) if parameter in positions else None
        if index is not None and self._tree.class_of(function) is not None:
            index -= 1
        found = []
        for call in self.callers(function):
            given = self._given(call, parameter.arg, index)
            if given is None:
                return ()
            found.append(given)
        return found

    def methods_used(self, scope: Scope | None, name: str) -> set[str]:
        """The methods that are called on a name of a scope, in it or within: what it must be able to do."""
        if self._used is None:
            self._used = {}
            for attribute, calls in self._by_method.items():
                for call in calls:
                    assert isinstance(call.func, ast.Attribute)
                    if isinstance(call.func.value, ast.Name):
                        key = self._names.home(call.func.value), call.func.value.id
                        self._used.setdefault(key, set()).add(attribute)
        return self._used.get((scope, name), set())

    def backward_receivers(self) -> Iterator[ast.expr]:
        """What backward is called on: ``x.backward()``, ``scaler.scale(x).backward()``, ``accelerator.backward(x)``."""
        for call, function in self.methods("backward", "manual_backward"):
            receiver = function.value
            if isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Attribute):
                if receiver.func.attr == "scale" and receiver.args:
                    yield receiver.args[0]
                continue
            if call.args and not isinstance(call.args[0], ast.Starred):
                gradient = self._names.qualified_name(call.args[0].func if isinstance(call.args[0], ast.Call) else None)
                if not (gradient or "").startswith("torch."):
                    yield call.args[0]
                    continue
            yield receiver

    # -- details ----------------------------------------------------------------------------------

    def _method(self, owner: ast.ClassDef, name: str, depth: int) -> Function | None:
        for statement in owner.body:
            if isinstance(statement, FUNCTIONS) and statement.name == name:
                return statement
        for base in owner.bases:
            own = self._names.definition(base)
            if isinstance(own, ast.ClassDef) and depth:
                found = self._method(own, name, depth - 1)
                if found is not None:
                    return found
        return None

    def _instance(self, expression: ast.expr, depth: int) -> ast.ClassDef | None:
        if depth == 0:
            return None
        match expression:
            case ast.Name():
                owner = self._owner(expression)
                if owner is not None:
                    return owner
                bindings = self._names.reaching(expression)
                values = [it.value for it in bindings if it.how == "assign" and it.value is not None]
                return self._common(values, depth) if len(values) == len(bindings) else None
            case ast.Attribute():
                return self._common(self.attribute_values(expression), depth)
            case ast.Call(func=func, args=arguments):
                definition = self._names.definition(func)
                if isinstance(definition, ast.ClassDef):
                    return definition
                name = self._names.qualified_name(func)
                if arguments and (name == "torch.compile" or name in known.MODULE_WRAPPERS):
                    return self._instance(arguments[0], depth - 1)
                if isinstance(func, ast.Attribute) and func.attr in known.KEEPS_KIND:
                    return self._instance(func.value, depth - 1)
        return None

    def _common(self, values: Sequence[ast.expr], depth: int) -> ast.ClassDef | None:
        classes = {self._instance(it, depth - 1) for it in values}
        return classes.pop() if len(classes) == 1 else None

    def _owner(self, expression: ast.expr) -> ast.ClassDef | None:
        """The class whose instance a method's first parameter is."""
        if not isinstance(expression, ast.Name):
            return None
        home = self._names.home(expression)
        if not isinstance(home, FUNCTIONS):
            return None
        owner = self._tree.class_of(home)
        positions = [*home.args.posonlyargs, *home.args.args]
        first = positions[0].arg if positions else None
        static = any(
            isinstance(it, ast.Name) and it.id in ("staticmethod", "classmethod") for it in home.decorator_list
        )
        return owner if first == expression.id and not static else None

    def _assigned(self) -> dict[tuple[ast.AST, str], list[ast.expr]]:
        if self._attributes is not None:
            return self._attributes
        found: dict[tuple[ast.AST, str], list[ast.expr]] = {}
        unknown = set()
        for attribute in self._tree.of(ast.Attribute):
            if isinstance(attribute.ctx, ast.Load):
                continue
            owner = self._owner(attribute.value)
            if owner is None:
                continue
            match self._tree.parent(attribute):
                case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                    found.setdefault((owner, attribute.attr), []).append(value)
                case _:
                    unknown.add((owner, attribute.attr))
        self._attributes = {key: values for key, values in found.items() if key not in unknown}
        return self._attributes

    @staticmethod
    def _given(call: ast.Call, name: str, index: int | None) -> ast.expr | None:
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        if index is None or not 0 <= index < len(call.args):
            return None
        if any(isinstance(it, ast.Starred) for it in call.args[: index + 1]):
            return None
        return call.args[index]
