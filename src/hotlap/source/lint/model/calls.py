"""Calls by name, the functions of this file that they run, and classes with their bases."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from hotlap.source.lint.model import torch_names as known
from hotlap.source.lint.model.names import Binding, Names
from hotlap.source.lint.model.tree import FUNCTIONS, Function, Scope, Tree, word

_DEEPEST = 12
_PARAMETERS_FOLLOWED = 3
"""The depth up to which following an object back includes callers' arguments."""


class Calls:
    """The calls of one file."""

    def __init__(self, tree: Tree, names: Names, alone: Calls | None = None) -> None:
        """``alone`` are the calls of the same file by itself, where it is joined with others."""
        self._tree = tree
        self._names = names
        self._by_name: dict[str, list[ast.Call]] = alone._by_name if alone is not None else {}
        self._by_method: dict[str, list[ast.Call]] = alone._by_method if alone is not None else {}
        self._callers: dict[ast.AST, list[ast.Call]] = {}
        self._calls_of_objects: dict[ast.AST, list[ast.Call]] | None = None
        self._instances: dict[ast.expr, ast.ClassDef | None] = {}
        self._returns: dict[ast.AST, list[ast.expr]] | None = None
        self._attributes: dict[tuple[ast.AST, str], list[ast.expr]] | None = None
        self._bases: dict[ast.ClassDef, frozenset[str]] = {}
        self._used: dict[tuple[Scope | None, str], set[str]] | None = None
        for call in tree.of(ast.Call) if alone is None else ():
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

    def methods(self, *attributes: str) -> Iterator[tuple[ast.Call, ast.Attribute]]:
        """Calls ``x.name(...)`` by the last name, for any x; with the called ``x.name``."""
        for attribute in attributes:
            for call in self._by_method.get(attribute, ()):
                assert isinstance(call.func, ast.Attribute)
                yield call, call.func

    def methods_everywhere(self, *attributes: str) -> Iterator[tuple[ast.Call, ast.Attribute]]:
        """As ``methods``, in this file and in those that it is joined with."""
        for attribute in attributes:
            for call in self._tree.calls_of(attribute):
                if isinstance(call.func, ast.Attribute):
                    yield call, call.func

    # -- functions and classes of this file -------------------------------------------------------

    def callee(self, call: ast.Call) -> Function | None:
        """The function of this file that a call runs: by name, as a method, or as a module's ``forward``."""
        definition = self._names.definition(call.func)
        if isinstance(definition, FUNCTIONS):
            return definition
        if isinstance(call.func, ast.Attribute):
            if _is_super(call.func.value):
                return self._method_of_bases(call)
            owner = self.instance_class(call.func.value)
            if owner is not None:
                return self.method(owner, call.func.attr)
        owner = self.instance_class(call.func) if definition is None else None
        return self.method(owner, "forward") if owner is not None else None

    def callers(self, function: ast.AST) -> Sequence[ast.Call]:
        """The calls in this file that are known to run a function; of a class's ``__init__`` those of the class."""
        found = self._callers.get(function)
        if found is None:
            found = self._callers[function] = []
            if isinstance(function, FUNCTIONS):
                found += (it for it in self._candidates(function) if self._may_run(self._runs(it), function))
        return found

    def _may_run(self, callee: Function | None, function: Function) -> bool:
        """Whether a call of a method runs a function: that one, or one that a derived class puts in its place."""
        if callee is function or callee is None or callee.name != function.name:
            return callee is function
        declared, owner = self._tree.class_of(callee), self._tree.class_of(function)
        return declared is not None and owner is not None and self._derives(owner, declared, _DEEPEST)

    def _derives(self, owner: ast.ClassDef, base: ast.ClassDef, depth: int) -> bool:
        above = [self._names.definition(it) for it in owner.bases]
        return bool(depth) and any(
            it is base or (isinstance(it, ast.ClassDef) and self._derives(it, base, depth - 1)) for it in above
        )

    def _runs(self, call: ast.Call) -> Function | None:
        definition = self._names.definition(call.func)
        return self.method(definition, "__init__") if isinstance(definition, ast.ClassDef) else self.callee(call)

    def _candidates(self, function: Function) -> Iterator[ast.Call]:
        """The calls that may run a function, by the names that it goes by; all calls for one that is run by calling
        an object, whatever that is called."""
        owner = self._tree.class_of(function)
        if owner is not None and function.name == "forward":
            if self._calls_of_objects is None:
                self._calls_of_objects = {}
                for call in self._tree.everywhere(ast.Call):
                    callee = self._runs(call)
                    if callee is not None and callee.name == "forward":
                        self._calls_of_objects.setdefault(callee, []).append(call)
            yield from self._calls_of_objects.get(function, ())
            return
        names = {function.name}
        if owner is not None and function.name == "__init__":
            names |= {it.name for it in self._tree.everywhere(ast.ClassDef)}
        waiting = list(names)
        while waiting:
            for other in self._names.also_called(waiting.pop()) - names:
                names.add(other)
                waiting.append(other)
        for name in sorted(names):
            yield from self._tree.calls_of(name)

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

    def classes_everywhere(self, *qualified: str) -> Iterator[ast.ClassDef]:
        """The classes of this file and of those that it is joined with that derive from one of these."""
        wanted = set(qualified)
        return (it for it in self._tree.everywhere(ast.ClassDef) if self.base_names(it) & wanted)

    def returns(self, function: Function) -> Sequence[ast.expr]:
        """The values of a function's ``return`` statements; empty if it returns nothing."""
        if self._returns is None:
            self._returns = {}
            for it in self._tree.everywhere(ast.Return):
                if it.value is not None:
                    self._returns.setdefault(self._tree.scope(it), []).append(it.value)
        return self._returns.get(function, ())

    def instance_class(self, expression: ast.expr) -> ast.ClassDef | None:
        """The class of this file that an expression is an instance of: ``self``, ``Net().to(device)``, ``self.net``."""
        if expression not in self._instances:
            self._instances[expression] = None
            self._instances[expression] = self._instance(expression, _DEEPEST)
        return self._instances[expression]

    def attribute_values(self, attribute: ast.Attribute) -> Sequence[ast.expr]:
        """The values that the class around ``self.x``, or else a base, assigns to it; empty if it may be bound
        elsewhere."""
        owner = self._owner(attribute.value)
        for _ in range(_DEEPEST):
            if owner is None:
                break
            found = self._assigned().get((owner, attribute.attr))
            if found is not None:
                return found
            above = [self._names.definition(it) for it in owner.bases]
            owner = next((it for it in above if isinstance(it, ast.ClassDef)), None)
        return ()

    def given_to(self, parameter: ast.arg) -> Sequence[ast.expr]:
        """The arguments that this file's calls pass to a parameter; empty unless all are known."""
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
        """The methods that are called on a name of a scope, in it or in inner ones."""
        if self._used is None:
            self._used = {}
            for call in self._tree.everywhere(ast.Call):
                if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
                    key = self._names.home(call.func.value), call.func.value.id
                    self._used.setdefault(key, set()).add(call.func.attr)
        return self._used.get((scope, name), set())

    def backward_receivers(self) -> Iterator[ast.expr]:
        """The loss that backward is called on: ``x.backward()``, ``scaler.scale(x).backward()``,
        ``accelerator.backward(x)``."""
        for call, function in self.methods_everywhere("backward", "manual_backward"):
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
                return self._instance_of_bindings(self._names.reaching(expression), depth)
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

    def _instance_of_bindings(self, bindings: Sequence[Binding], depth: int) -> ast.ClassDef | None:
        values: list[ast.expr] = []
        for it in bindings:
            if isinstance(it.node, ast.arg):
                annotated = self._names.definition(it.node.annotation) if it.node.annotation is not None else None
                if isinstance(annotated, ast.ClassDef) and len(bindings) == 1:
                    return annotated
                given = self.given_to(it.node) if depth > _DEEPEST - _PARAMETERS_FOLLOWED else ()
                if not given:
                    return None
                values += given
            elif it.how == "assign" and it.value is not None:
                values.append(it.value)
            else:
                return None
        return self._common(values, depth)

    def _method_of_bases(self, call: ast.Call) -> Function | None:
        """The method that ``super().name()`` runs."""
        assert isinstance(call.func, ast.Attribute)
        function = self._tree.function(call)
        owner = self._tree.class_of(function) if function is not None else None
        for base in owner.bases if owner is not None else ():
            own = self._names.definition(base)
            found = self._method(own, call.func.attr, _DEEPEST) if isinstance(own, ast.ClassDef) else None
            if found is not None:
                return found
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
        for attribute in self._tree.everywhere(ast.Attribute):
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


def _is_super(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Call) and word(expression.func) == "super"
