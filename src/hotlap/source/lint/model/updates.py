"""How the weights of a file are updated: steps of optimizers, cleared and clipped gradients, and gradient scalers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from hotlap.source.lint.model.calls import Calls
from hotlap.source.lint.model.kinds import Kinds
from hotlap.source.lint.model.names import Names
from hotlap.source.lint.model.training import Training
from hotlap.source.lint.model.tree import FUNCTIONS, Tree, word

_CLIPPING = frozenset(
    f"torch.nn.utils.{module}{name}"
    for module in ("", "clip_grad.")
    for name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")
)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """``optimizer.step()`` or ``scaler.step(optimizer)``."""

    call: ast.Call
    optimizer: ast.expr
    scaler: ast.expr | None


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """``scaler.scale(loss).backward()``."""

    call: ast.Call
    scaler: ast.expr
    loss: ast.expr


class Updates:
    """The updates of one file."""

    def __init__(self, tree: Tree, names: Names, calls: Calls, kinds: Kinds, training: Training) -> None:
        self._tree = tree
        self._names = names
        self._calls = calls
        self._kinds = kinds
        self._training = training

    @cached_property
    def steps(self) -> Sequence[Step]:
        """The steps of optimizers, in source order; not those that are given a closure."""
        found = []
        for call in self._training.optimizer_steps:
            assert isinstance(call.func, ast.Attribute)
            receiver = call.func.value
            if not call.args and not call.keywords:
                found.append(Step(call, receiver, None))
            elif call.args and self._is_scaler(receiver):
                found.append(Step(call, call.args[0], receiver))
        return sorted(found, key=lambda it: position(it.call))

    @cached_property
    def clears(self) -> Sequence[tuple[ast.Call, ast.expr]]:
        """The calls ``x.zero_grad(...)`` with their ``x``, in source order."""
        found = [(call, function.value) for call, function in self._calls.methods("zero_grad")]
        return sorted(found, key=lambda it: position(it[0]))

    @cached_property
    def clips(self) -> Sequence[ast.Call]:
        """The calls of ``torch.nn.utils.clip_grad_norm_`` and its like."""
        return tuple(it for it in self._tree.of(ast.Call) if self._names.qualified_name(it.func) in _CLIPPING)

    @cached_property
    def scaled(self) -> Sequence[Scaled]:
        """The backward passes of scaled losses."""
        found = []
        for call in self._training.backward_calls:
            match call.func:
                case ast.Attribute(value=ast.Call(func=ast.Attribute(value=scaler, attr="scale"), args=[loss])):
                    found.append(Scaled(call, scaler, loss))
        return found

    def backwards_between(self, first: ast.AST, last: ast.AST) -> bool:
        """Whether a backward pass may run between two places of one function: by name, or in an unknown function."""
        start, end = position(first), position(last)
        inside = set(ast.walk(first)) | set(ast.walk(last))
        for call in self._tree.of(ast.Call):
            if start < position(call) < end and call not in inside and not self._keeps_gradients(call):
                return True
        stored = (it for it in self._tree.of(ast.Attribute) if it.attr in ("grad", "_grad"))
        return any(start < position(it) < end and isinstance(it.ctx, ast.Store) for it in stored)

    def exclusive(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether two places are in different branches of an ``if``, ``try`` or ``match``: a pass runs only one of
        them."""
        ways = dict(_upwards(self._tree, one))
        for above, child in _upwards(self._tree, other):
            mine = ways.get(above)
            if mine is None:
                continue
            if isinstance(above, (ast.If, ast.Try, ast.Match, ast.IfExp)):
                return self._tree.field(mine) != self._tree.field(child) or isinstance(mine, ast.match_case)
            return False
        return False

    def _keeps_gradients(self, call: ast.Call) -> bool:
        """Whether a call certainly neither computes nor replaces gradients."""
        name = self._names.qualified_name(call.func) or ""
        if name.startswith(("torch.", "builtins.")):
            return not name.startswith("torch.autograd.")
        return isinstance(call.func, ast.Attribute) and call.func.attr in _HARMLESS

    def _is_scaler(self, receiver: ast.expr) -> bool:
        if self._kinds.kind(receiver) == "scaler":
            return True
        return isinstance(receiver, (ast.Name, ast.Attribute)) and "scaler" in word(receiver).lower()


_HARMLESS = frozenset(
    {
        *("item", "unscale_", "append", "log", "info", "add_scalar", "set_postfix", "set_description", "format"),
        *("parameters", "named_parameters", "get_last_lr", "detach", "cpu", "numpy", "size", "zero_grad", "update"),
        *("tolist", "mean", "sum"),
    }
)


def same(one: ast.expr | None, other: ast.expr | None) -> bool:
    """Whether two expressions have the same source."""
    return one is not None and other is not None and ast.dump(one) == ast.dump(other)


def position(node: ast.AST) -> tuple[int, int]:
    """Line and column where a node begins."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _upwards(tree: Tree, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The nodes around a node up to its function, each with its child on the way."""
    child = node
    for above in tree.ancestors(node):
        yield above, child
        if isinstance(above, FUNCTIONS):
            return
        child = above
