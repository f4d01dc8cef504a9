"""A data set's work per sample, as far as the file shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hotlap.source.lint.model import data_names as known
from hotlap.source.lint.model.calls import Calls
from hotlap.source.lint.model.names import Binding, Names
from hotlap.source.lint.model.tree import Function, Tree

SAMPLE_METHODS = ("__getitem__", "__getitems__", "__iter__")
"""The methods of a data set that run for every sample."""

_DEEPEST = 10


@dataclass(frozen=True, slots=True)
class Work:
    """The work for every sample: ``what`` completes "for every sample it ...", ``node`` is where, if in this file.

    ``owner`` is the class in this file, or None.
    """

    dataset: str
    what: str
    node: ast.AST | None = None
    owner: ast.ClassDef | None = None


class Datasets:
    """The data sets of one file."""

    def __init__(self, tree: Tree, names: Names, calls: Calls) -> None:
        self._tree = tree
        self._names = names
        self._calls = calls
        self._known: dict[tuple[ast.expr, tuple[int, ...], int], Work | None] = {}

    def work(self, expression: ast.expr | None) -> Work | None:
        """An expression's data set's work per sample; None if it is cheap or unknown."""
        return self._work(expression, (), _DEEPEST)

    def classes(self) -> Iterator[ast.ClassDef]:
        """The classes of this file that are data sets of torch or torchvision."""
        for it in self._tree.of(ast.ClassDef):
            if any(_is_dataset(base) for base in self._calls.base_names(it)):
                yield it

    def sample_methods(self, owner: ast.ClassDef) -> Iterator[Function]:
        """The methods of a data set that run for every sample, those of bases in this file included."""
        for name in SAMPLE_METHODS:
            method = self._calls.method(owner, name)
            if method is not None:
                yield method

    def with_callees(self, function: Function) -> Iterator[Function]:
        """A function, and those of this file that it calls."""
        yield function
        seen: set[ast.AST] = {function}
        for call in self._calls_in(function):
            callee = self._calls.callee(call)
            if callee is not None and callee not in seen and callee.name != "__init__":
                seen.add(callee)
                yield callee

    # -- following an expression to its data set --------------------------------------------------

    def _work(self, node: ast.expr | None, index: tuple[int, ...], depth: int) -> Work | None:
        """Cache each expression: names that refer to each other would be followed along every path."""
        if node is None or depth == 0:
            return None
        question = (node, index, depth)
        if question not in self._known:
            self._known[question] = self._followed(node, index, depth - 1)
        return self._known[question]

    def _followed(self, node: ast.expr, index: tuple[int, ...], depth: int) -> Work | None:
        match node:
            case ast.Name():
                return _common([self._of_binding(it, index, depth) for it in self._names.reaching(node)])
            case ast.Attribute():
                return _common([self._work(it, index, depth) for it in self._calls.attribute_values(node)])
            case ast.IfExp(body=body, orelse=orelse):
                return _common([self._work(it, index, depth) for it in (body, orelse)])
            case ast.Tuple(elts=parts) if index and index[0] < len(parts):
                return self._work(parts[index[0]], index[1:], depth)
            case ast.Subscript(value=value):
                return self._entry(value, depth)
            case ast.Call():
                return self._of_call(node, index, depth)
        return None

    def _of_binding(self, binding: Binding, index: tuple[int, ...], depth: int) -> Work | None:
        if binding.how in ("assign", "unpack"):
            return self._work(binding.value, (*binding.index, *index), depth)
        if binding.how == "parameter" and isinstance(binding.node, ast.arg):
            return _common([self._work(it, index, depth) for it in self._calls.given_to(binding.node)])
        return None

    def _entry(self, value: ast.expr, depth: int) -> Work | None:
        """Any data set of a dictionary or of the result of ``random_split``."""
        if isinstance(value, ast.Name):
            bindings = self._names.reaching(value)
            if len(bindings) != 1 or bindings[0].how != "assign" or bindings[0].value is None:
                return None
            value = bindings[0].value
        match value:
            case ast.DictComp(value=made):
                return self._work(made, (), depth)
            case ast.Dict(values=values):
                return _common([self._work(it, (), depth) for it in values])
            case ast.Call():
                return self._of_call(value, (0,), depth)
        return None

    def _of_call(self, call: ast.Call, index: tuple[int, ...], depth: int) -> Work | None:
        definition = self._names.definition(call.func)
        if isinstance(definition, ast.ClassDef):
            return self._of_class(definition, call) if not index else None
        callee = self._calls.callee(call)
        if callee is not None:
            return _common([self._work(it, index, depth) for it in self._calls.returns(callee)])
        name = self._names.qualified_name(call.func) or ""
        first = call.args[0] if call.args else next((it.value for it in call.keywords if it.arg == "dataset"), None)
        if name == "torch.utils.data.random_split" or (name == "torch.utils.data.Subset" and not index):
            return self._work(first, (), depth)
        if name == "torch.utils.data.ConcatDataset" and isinstance(first, (ast.List, ast.Tuple)):
            return _common([self._work(it, (), depth) for it in first.elts])
        return self._of_torchvision(name, call) if not index else None

    @staticmethod
    def _of_torchvision(name: str, call: ast.Call) -> Work | None:
        module, _, last = name.rpartition(".")
        if not module.startswith("torchvision.datasets"):
            return None
        if last in known.FROM_FILES:
            return Work(last, "reads and decodes a file")
        transform = any(it.arg in ("transform", "transforms") for it in call.keywords) or len(call.args) > 2
        if last in known.FROM_MEMORY and transform:
            return Work(last, "makes a picture and transforms it")
        return None

    # -- what a class does ------------------------------------------------------------------------

    def _of_class(self, owner: ast.ClassDef, made: ast.Call) -> Work | None:
        methods = list(self.sample_methods(owner))
        if any(it.name == "__iter__" for it in methods) and not _reads_worker_info(owner):
            return None
        if not methods:
            inherited = (self._of_torchvision(it, made) for it in self._calls.base_names(owner))
            found = next((it for it in inherited if it is not None), None)
            return Work(owner.name, found.what, None, owner) if found is not None else None
        for method in methods:
            for function in self.with_callees(method):
                for call in self._calls_in(function):
                    what = self._done_by(call, owner, made)
                    if what is not None and not self._once_only(call, function):
                        return Work(owner.name, what, call, owner)
        return None

    def _done_by(self, call: ast.Call, owner: ast.ClassDef, made: ast.Call) -> str | None:
        name = self._names.qualified_name(call.func)
        if name in known.READS:
            return "reads a file"
        if name in known.DECODES:
            return "decodes"
        if name is not None and name.startswith(known.TRANSFORMING_MODULES):
            return f"calls `{name.rpartition('.')[2]}`"
        match call.func:
            case ast.Attribute(attr="read_bytes" | "read_text") if not call.args:
                return "reads a file"
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute) if known.TRANSFORM_NAME.match(attribute):
                return f"calls `{attribute}`" if self._is_given(call.func, made) else None
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=attribute), attr=method):
                if known.TRANSFORM_NAME.match(attribute) and method.startswith(
                    ("encode", "tokenize", "__call__", "apply")
                ):
                    return f"calls `{attribute}`"
        return None

    def _is_given(self, attribute: ast.Attribute, made: ast.Call) -> bool:
        """Whether a transform is there at all: where the class was made without one, its default counts as none."""
        values = self._calls.attribute_values(attribute)
        if len(values) != 1 or not isinstance(values[0], ast.Name):
            return not all(isinstance(it, ast.Constant) for it in values) if values else True
        bindings = self._names.reaching(values[0])
        parameter = bindings[0].node if len(bindings) == 1 else None
        arguments = self._tree.parent(parameter) if isinstance(parameter, ast.arg) else None
        if not isinstance(arguments, ast.arguments) or not isinstance(parameter, ast.arg):
            return True
        if any(it.arg is None for it in made.keywords) or any(isinstance(it, ast.Starred) for it in made.args):
            return False
        given = next((it.value for it in made.keywords if it.arg == parameter.arg), None)
        positions = [*arguments.posonlyargs, *arguments.args]
        if given is None and parameter in positions:
            index = positions.index(parameter) - 1
            given = made.args[index] if 0 <= index < len(made.args) else None
        return given is not None and not (isinstance(given, ast.Constant) and given.value is None)

    def _once_only(self, call: ast.Call, function: Function) -> bool:
        """Whether it is done for the first use only, and kept."""
        for decorator in function.decorator_list:
            plain = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self._names.qualified_name(plain) in known.CACHES:
                return True
        for above in self._tree.ancestors(call):
            if above is function:
                return False
            if isinstance(above, (ast.If, ast.IfExp)) and _tests_for_absence(above.test):
                return True
        return False

    def _calls_in(self, function: Function) -> Iterator[ast.Call]:
        return (it for statement in function.body for it in ast.walk(statement) if isinstance(it, ast.Call))


def _is_dataset(name: str) -> bool:
    module, _, last = name.rpartition(".")
    if module in ("torch.utils.data", "torch.utils.data.dataset"):
        return last.endswith("Dataset")
    return module.startswith("torchvision.datasets")


def _reads_worker_info(owner: ast.ClassDef) -> bool:
    """Whether a class checks which worker it runs in; otherwise every worker of an iterable data set yields all
    samples."""
    for it in ast.walk(owner):
        word = it.attr if isinstance(it, ast.Attribute) else it.id if isinstance(it, ast.Name) else ""
        if word == "get_worker_info":
            return True
    return False


def _common(found: list[Work | None]) -> Work | None:
    """The first work, if all of them are expensive."""
    return found[0] if found and all(found) else None


def _tests_for_absence(test: ast.expr) -> bool:
    """``if x is None``, ``if key not in cache``, ``if not self.loaded``."""
    for it in ast.walk(test):
        if isinstance(it, ast.Compare) and any(isinstance(op, (ast.Is, ast.In, ast.NotIn)) for op in it.ops):
            return True
        if isinstance(it, ast.UnaryOp) and isinstance(it.op, ast.Not):
            return True
    return False
