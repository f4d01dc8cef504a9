"""How often a branch runs: in every step, at an interval, or unknown.

``if step % 100 == 0`` is an interval, and so is ``if i == 0`` and a block that leaves the loop. ``if rank == 0`` is
not: that rank takes the branch in every step. A flag such as ``should_log`` may be either, so it is unknown.
"""

from __future__ import annotations

import ast
import re
from typing import Literal, TypeAlias

from hotlap.source.lint.model.names import Names
from hotlap.source.lint.model.tree import FUNCTIONS, LOOPS, Tree

Frequency: TypeAlias = Literal["every_step", "unknown", "interval"]

_RARER: dict[Frequency, int] = {"every_step": 0, "unknown": 1, "interval": 2}
# Values that are constant during a run: the process, its arguments, the hardware.
_CONSTANT = re.compile(
    r"^_?((is_|on_)?(main|master|local_main|world)(_process|_rank|_zero)?|(is_)?(global_|local_|world_)?rank(_zero)?|"
    r"(is_)?global_zero|use_\w+|with_\w+|(use_)?(amp|cuda|fp16|bf16|half|ddp|distributed|gpu|mixed_precision)(_enabled)?"
    r"|enabled|world_size|device)$"
)
_CONSTANT_CALLS = frozenset({"is_available", "get_rank", "is_initialized", "is_main_process", "get_world_size"})
_LEAVES = (ast.Break, ast.Return, ast.Raise)


def rarer(first: Frequency, second: Frequency) -> Frequency:
    """The rarer of two: a step must pass both."""
    return first if _RARER[first] >= _RARER[second] else second


class Guards:
    """How often nodes run, seen from a loop or function around them."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names

    def frequency(self, node: ast.AST, outer: ast.AST) -> Frequency:
        """How often a node runs, each time that ``outer``, a loop or a function around it, runs its body."""
        found: Frequency = "every_step"
        child = node
        for above in self._tree.ancestors(node):
            found = rarer(found, self._step(above, child))
            if found == "interval" or above is outer:
                break
            child = above
        return found

    def _step(self, above: ast.AST, child: ast.AST) -> Frequency:
        """How often ``above`` runs its direct child."""
        found: Frequency = "every_step"
        match above:
            case ast.If(test=test) | ast.IfExp(test=test) if child is not test:
                taken = child is above.body if isinstance(above, ast.IfExp) else child in above.body
                found = "interval" if taken and _makes_once(above) else self.passes(test, taken)
            case ast.BoolOp(op=operator, values=values) if child is not values[0]:
                before = values[: next(i for i, it in enumerate(values) if it is child)]
                for it in before:
                    found = rarer(found, self.passes(it, isinstance(operator, ast.And)))
            case ast.ExceptHandler():
                found = "unknown"
            case ast.match_case():
                found = "unknown"
            case ast.For(orelse=last) | ast.AsyncFor(orelse=last) | ast.While(orelse=last) if child in last:
                found = "interval"
            case ast.Assert(msg=message) if child is message:
                found = "interval"
        if isinstance(child, ast.stmt):
            found = rarer(found, self._in_block(above, child))
        return found

    def _in_block(self, above: ast.AST, child: ast.stmt) -> Frequency:
        """How neighbouring statements guard a statement: ``if step % n: continue`` before it, or ``break`` after it."""
        block = getattr(above, self._tree.field(child), None)
        if not isinstance(block, list):
            return "every_step"
        found: Frequency = "every_step"
        for statement in block:
            if statement is child:
                break
            if isinstance(statement, ast.If) and not statement.orelse and _leaves(statement.body[-1]):
                passed = self.passes(statement.test, False)
                found = rarer(found, "interval" if passed == "interval" else "every_step")
        ends = isinstance(above, ast.If) and isinstance(block[-1], _LEAVES) and self._leaves_loop(block[-1])
        return "interval" if ends else found

    def _leaves_loop(self, last: ast.AST) -> bool:
        """Whether a ``break``, ``return`` or ``raise`` ends the repetition; a return does only if a loop is around."""
        if not isinstance(last, ast.Return):
            return True
        for above in self._tree.ancestors(last):
            if isinstance(above, LOOPS):
                return True
            if isinstance(above, FUNCTIONS):
                return False
        return False

    # -- tests ------------------------------------------------------------------------------------

    def passes(self, test: ast.expr, taken: bool) -> Frequency:
        """How often a test comes out as ``taken``."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.passes(operand, not taken)
            case ast.BoolOp(op=operator, values=values):
                each = [self.passes(it, taken) for it in values]
                all_must = isinstance(operator, ast.And) is taken
                return max(each, key=_RARER.__getitem__) if all_must else min(each, key=_RARER.__getitem__)
            case ast.Constant():
                return "every_step"
            case ast.BinOp(op=ast.Mod()):
                return "every_step" if taken else "interval"
            case ast.Compare():
                return self._compares(test, taken)
            case ast.NamedExpr(value=value):
                return self.passes(value, taken)
            case ast.Call():
                return self._called(test)
            case ast.Name():
                return self._named(test, taken)
            case ast.Attribute(attr=attribute):
                return "every_step" if _CONSTANT.match(attribute) else "unknown"
        return "unknown"

    def _compares(self, test: ast.Compare, taken: bool) -> Frequency:
        if len(test.ops) != 1:
            return "unknown"
        left, operator, right = test.left, test.ops[0], test.comparators[0]
        if isinstance(operator, (ast.Is, ast.IsNot)):
            return "every_step"
        if self._same_in_all_steps(left) or self._same_in_all_steps(right):
            return "every_step"
        equal = isinstance(operator, (ast.Eq, ast.In))
        if isinstance(operator, (ast.Eq, ast.In, ast.NotEq, ast.NotIn)):
            if _has_modulo(left) or _has_modulo(right) or self._counts(left) or self._counts(right):
                return "interval" if equal is taken else "every_step"
            return "unknown"
        if _has_modulo(left) or _has_modulo(right):
            return "interval"
        return "unknown"

    def _called(self, call: ast.Call) -> Frequency:
        name = self._names.qualified_name(call.func) or ""
        last = name.rpartition(".")[2]
        match call.func:
            case ast.Attribute(attr=word) | ast.Name(id=word):
                last = last or word
        if last in _CONSTANT_CALLS or name in ("builtins.isinstance", "builtins.hasattr", "builtins.callable"):
            return "every_step"
        return "unknown"

    def _named(self, name: ast.Name, taken: bool) -> Frequency:
        """A flag: its assigned value, if that is a single test."""
        if _CONSTANT.match(name.id):
            return "every_step"
        bindings = self._names.reaching(name)
        values = [it.value for it in bindings if it.how == "assign" and it.value is not None]
        if len(bindings) == 1 and len(values) == 1 and not isinstance(values[0], (ast.Name, ast.Constant)):
            return self.passes(values[0], taken)
        return "unknown"

    def _same_in_all_steps(self, side: ast.expr) -> bool:
        match side:
            case ast.Name(id=word) | ast.Attribute(attr=word):
                return _CONSTANT.match(word) is not None
            case ast.Call():
                return self._called(side) == "every_step"
        return False

    def _counts(self, side: ast.expr) -> bool:
        """Whether it is a loop's counter by its bindings: ``i + 1`` of ``for i, x in enumerate(...)``."""
        if isinstance(side, ast.BinOp) and isinstance(side.op, (ast.Add, ast.Sub)):
            return self._counts(side.left) or self._counts(side.right)
        if not isinstance(side, ast.Name):
            return False
        for binding in self._names.reaching(side):
            over = binding.value
            if binding.how == "augmented":
                return True
            if binding.how == "loop" and isinstance(over, ast.Call):
                name = self._names.qualified_name(over.func)
                if name == "builtins.range" or (name == "builtins.enumerate" and binding.index == (0,)):
                    return True
        return False


def _has_modulo(expression: ast.expr) -> bool:
    return any(isinstance(it, ast.BinOp) and isinstance(it.op, ast.Mod) for it in ast.walk(expression))


def _makes_once(branch: ast.If | ast.IfExp) -> bool:
    """Whether it is ``if x is None: x = ...``, whose body runs once."""
    match branch:
        case ast.If(test=ast.Compare(left=made, ops=[ast.Is()], comparators=[ast.Constant(value=None)]), body=body):
            targets = (it for one in body if isinstance(one, ast.Assign) for it in one.targets)
            return any(ast.unparse(it) == ast.unparse(made) for it in targets)
    return False


def _leaves(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Continue, *_LEAVES))
