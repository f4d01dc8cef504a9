"""The ``DataLoader`` of an expression or a batch, and the loops over one."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TypeAlias

from hotlap.source.lint.model import torch_names as known
from hotlap.source.lint.model.calls import Calls
from hotlap.source.lint.model.names import Binding, Names
from hotlap.source.lint.model.tree import FUNCTIONS, Tree

Made: TypeAlias = frozenset[ast.Call]
"""The ``DataLoader(...)`` calls that may have made a value; empty unless every origin is known."""

_DEEPEST = 12
_NOTHING: Made = frozenset()
_PASS_ON = frozenset({"builtins.iter", "builtins.next", "itertools.islice", "rich.progress.track"})
_VIEWS = frozenset({"items", "values"})


class Loaders:
    """The data loaders of one file."""

    def __init__(self, tree: Tree, names: Names, calls: Calls) -> None:
        self._tree = tree
        self._names = names
        self._calls = calls
        self._asked: set[tuple[ast.AST, bool]] = set()

    @cached_property
    def all(self) -> Sequence[ast.Call]:
        """Every call of ``torch.utils.data.DataLoader``, in source order."""
        found = (it for name in known.LOADERS for it in self._calls.named(name))
        return tuple(it for it in found if self._names.qualified_name(it.func) in known.LOADERS)

    def of_batch(self, expression: ast.expr | None) -> Made:
        """The loader that gave a batch, or the batch that an expression is a part of."""
        return self._batch(expression, _DEEPEST)

    def passes_over(self, loader: ast.Call) -> Sequence[ast.For | ast.AsyncFor]:
        """The ``for`` loops that are known to run over that call's loader."""
        return tuple(loop for loop, made in self._passes if loader in made)

    @cached_property
    def _passes(self) -> Sequence[tuple[ast.For | ast.AsyncFor, Made]]:
        loops: list[ast.For | ast.AsyncFor] = [*self._tree.of(ast.For), *self._tree.of(ast.AsyncFor)]
        return [(it, made) for it in loops if (made := self._run_over(it.iter, (), _DEEPEST))]

    # -- loaders ----------------------------------------------------------------------------------

    def _loader(self, node: ast.expr | None, index: tuple[int, ...], depth: int) -> Made:
        """The loader at ``index`` within a value that may be a tuple."""
        if node is None or depth == 0 or (node, False) in self._asked:
            return _NOTHING
        self._asked.add((node, False))
        try:
            return self._find(node, index, depth - 1)
        finally:
            self._asked.discard((node, False))

    def _find(self, node: ast.expr, index: tuple[int, ...], depth: int) -> Made:
        match node:
            case ast.Name():
                bindings = self._names.reaching(node)
                return _all(self._bound(it, index, depth) for it in bindings)
            case ast.Attribute():
                return _all(self._loader(it, index, depth) for it in self._calls.attribute_values(node))
            case ast.IfExp(body=body, orelse=orelse):
                return _all(self._loader(it, index, depth) for it in (body, orelse))
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if index:
                if index[0] < len(parts) and not any(isinstance(it, ast.Starred) for it in parts):
                    return self._loader(parts[index[0]], index[1:], depth)
            case ast.Subscript(value=value, slice=key):
                return self._entry(value, key, index, depth)
            case ast.Call():
                return self._called(node, index, depth)
        return _NOTHING

    def _called(self, call: ast.Call, index: tuple[int, ...], depth: int) -> Made:
        if self._names.qualified_name(call.func) in known.LOADERS:
            return frozenset({call}) if not index else _NOTHING
        definition = self._calls.callee(call)
        if isinstance(definition, FUNCTIONS):
            return _all(self._loader(it, index, depth) for it in self._calls.returns(definition))
        return _NOTHING

    def _bound(self, binding: Binding, index: tuple[int, ...], depth: int) -> Made:
        if binding.how in ("assign", "unpack"):
            return self._loader(binding.value, (*binding.index, *index), depth)
        if binding.how == "parameter" and isinstance(binding.node, ast.arg):
            return _all(self._loader(it, index, depth) for it in self._calls.given_to(binding.node))
        return _NOTHING

    def _entry(self, value: ast.expr, key: ast.expr, index: tuple[int, ...], depth: int) -> Made:
        """A loader of a dictionary: ``loaders["train"]``, or any of them where the key is not known."""
        while isinstance(value, ast.Name):
            bindings = self._names.reaching(value)
            if len(bindings) != 1 or bindings[0].how != "assign" or bindings[0].value is None:
                return _NOTHING
            value = bindings[0].value
        if isinstance(value, ast.DictComp):
            return self._loader(value.value, index, depth)
        if not isinstance(value, ast.Dict):
            return _NOTHING
        wanted = key.value if isinstance(key, ast.Constant) else None
        keys = [it.value if isinstance(it, ast.Constant) else None for it in value.keys]
        if wanted is not None and wanted in keys:
            return self._loader(value.values[keys.index(wanted)], index, depth)
        return _all(self._loader(it, index, depth) for it in value.values)

    # -- batches ----------------------------------------------------------------------------------

    def _batch(self, node: ast.expr | None, depth: int) -> Made:
        if node is None or depth == 0 or (node, True) in self._asked:
            return _NOTHING
        self._asked.add((node, True))
        try:
            return self._find_batch(node, depth - 1)
        finally:
            self._asked.discard((node, True))

    def _find_batch(self, node: ast.expr, depth: int) -> Made:
        match node:
            case ast.Name():
                return _all(self._batch_bound(it, depth) for it in self._names.reaching(node))
            case ast.Subscript(value=value) | ast.Attribute(value=value):
                return self._batch(value, depth)
            case ast.Call(func=func, args=[first, *_]) if self._names.qualified_name(func) == "builtins.next":
                return self._run_over(first, (), depth)
        return _NOTHING

    def _batch_bound(self, binding: Binding, depth: int) -> Made:
        match binding.how:
            case "assign" | "unpack":
                return self._batch(binding.value, depth)
            case "loop":
                over = binding.value
                match over:
                    case ast.Call(func=ast.Attribute(value=value, attr=attribute)) if attribute in _VIEWS:
                        return self._batch(value, depth)
                return self._run_over(over, binding.index, depth) or self._batch(over, depth)
            case "parameter" if isinstance(binding.node, ast.arg):
                return _all(self._batch(it, depth) for it in self._calls.given_to(binding.node))
        return _NOTHING

    def _run_over(self, over: ast.expr | None, index: tuple[int, ...], depth: int) -> Made:
        """The loader that a loop runs over, through ``enumerate``, ``zip``, ``iter`` and progress bars."""
        for _ in range(depth):
            if isinstance(over, ast.Name):
                bar = self._bar(over) if not self._loader(over, (), depth) else None
                if bar is None:
                    break
                over = bar
            if not isinstance(over, ast.Call) or not over.args:
                break
            name = self._names.qualified_name(over.func) or ""
            if name == "builtins.enumerate":
                if index[:1] == (0,):
                    return _NOTHING
                over, index = over.args[0], index[1:]
            elif name == "builtins.zip":
                if not index or index[0] >= len(over.args):
                    return _NOTHING
                over, index = over.args[index[0]], index[1:]
            elif name in _PASS_ON or name.startswith("tqdm"):
                over = over.args[0]
            else:
                break
        return self._loader(over, (), depth)

    def _bar(self, name: ast.Name) -> ast.Call | None:
        """The call that a name was bound to before the loop: ``bar = tqdm(loader)``, ``with tqdm(loader) as bar``."""
        bindings = self._names.reaching(name)
        if len(bindings) != 1 or bindings[0].how not in ("assign", "with"):
            return None
        return bindings[0].value if isinstance(bindings[0].value, ast.Call) else None


def _all(found: Iterable[Made]) -> Made:
    """The union, if all are known."""
    each = tuple(found)
    return frozenset().union(*each) if all(each) else _NOTHING
