"""Find evaluation loops, which call a module on one batch after another without training it.

A loop evaluates if the name of its data, or of the function around it, says so (``val_loader``,
``def evaluate``), or if the function has put a module into evaluation mode before; and if neither it nor any
function of the file that it calls has a backward pass, an optimizer's step, or anything else that needs gradients.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from hotlap.source.lint.model import torch_names as known
from hotlap.source.lint.model.calls import Calls
from hotlap.source.lint.model.kinds import Kinds
from hotlap.source.lint.model.names import Names
from hotlap.source.lint.model.training import Training
from hotlap.source.lint.model.tree import Function, Loop, Tree, word

_DATA = re.compile(r"(^|_)(val|valid|validation|eval|evaluation|test|testing|dev|held_?out)(_?\d*)(_|$)", re.IGNORECASE)
# `test_something` is a unit test as a rule; a function that evaluates is called `test`, `test_epoch` and the like.
_FUNCTION = re.compile(
    r"^_*(run_|do_)?(val|valid|validate|validation|eval|evaluate|evaluation)(_|$)|_(validate|evaluate|eval)$"
    r"|^_*(run_)?test(_epoch|_loop|_model|_one_epoch)?$|(^|_)(accuracy|perplexity)$|^estimate_loss$",
    re.IGNORECASE,
)
_USED_ON_MODULES = frozenset(
    {"eval", "train", "parameters", "named_parameters", "state_dict", "load_state_dict", "zero_grad"}
)
# Functions with these names compute gradients, wherever they are defined.
_ASKS_FOR_GRADIENTS = re.compile(
    r"(^|_)(adv|adversarial|attack|attacker|perturb|saliency|gradients?)(_|$)", re.IGNORECASE
)
_GRADIENTS = frozenset({"backward", "manual_backward", "requires_grad_", "requires_grad", "enable_grad", "retain_grad"})


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationLoop:
    """A loop that evaluates. ``call`` is the first call of a module in it, ``named`` whether its data or function is
    named after evaluation, ``function`` the function it is in."""

    node: Loop
    call: ast.Call
    named: bool
    function: Function | None


class Evaluation:
    """The evaluation loops of one file."""

    def __init__(self, tree: Tree, names: Names, calls: Calls, kinds: Kinds, training: Training) -> None:
        self._tree = tree
        self._names = names
        self._calls = calls
        self._kinds = kinds
        self._training = training

    @cached_property
    def loops(self) -> Sequence[EvaluationLoop]:
        """All of them, in source order; the innermost of nested ones."""
        found = []
        for node in self._tree.of(ast.For):
            call = self._module_call(node)
            function = self._tree.function(node)
            if call is None or self._is_called_by_a_trainer(function) or self._needs_gradients(node):
                continue
            named = self._is_named(node, function)
            if named or self._is_switched_before(node, function):
                found.append(EvaluationLoop(node, call, named, function))
        return found

    @cached_property
    def mode_switches(self) -> Sequence[ast.Call]:
        """The calls that put a module into evaluation mode, or an unknown one: ``.eval()``, ``.train(x)``."""
        switches = [call for call, _ in self._calls.methods("eval") if not call.args]
        return [*switches, *(call for call, _ in self._calls.methods("train") if call.args or call.keywords)]

    def leading_to(self, function: Function | None) -> tuple[set[Function | None], bool]:
        """The functions from which a function is reached, itself among them (None: the module's own code), and whether
        all of the ways begin in the module's own code, so that nothing outside of the file is known to call it."""
        found: set[Function | None] = set()
        complete = True
        waiting = [function]
        while waiting:
            it = waiting.pop()
            if it in found:
                continue
            found.add(it)
            if it is not None:
                callers = self._calls.callers(it)
                complete = complete and bool(callers)
                waiting += [self._tree.function(call) for call in callers]
        return found, complete

    def reached_from(self, node: ast.AST) -> Iterator[Function]:
        """The functions of this file that the calls within a node lead to, also through one another."""
        seen: set[ast.AST] = set()
        waiting = [node]
        while waiting:
            for call in (it for it in ast.walk(waiting.pop()) if isinstance(it, ast.Call)):
                callee = self._calls.callee(call)
                if callee is not None and callee not in seen:
                    seen.add(callee)
                    waiting.append(callee)
                    yield callee

    def is_module(self, expression: ast.expr) -> bool:
        """Whether a value is a module, by its kind or its use."""
        if self._kinds.kind(expression) in ("module", "compiled"):
            return True
        match expression:
            case ast.Name():
                used = self._calls.methods_used(self._names.home(expression), expression.id)
                return bool(used & _USED_ON_MODULES)
            case ast.Attribute(value=ast.Name(id="self")):
                return expression.attr in self._attributes_used_as_modules
        return False

    # -- details ----------------------------------------------------------------------------------

    @cached_property
    def _attributes_used_as_modules(self) -> set[str]:
        used = (it.value for _, it in self._calls.methods(*_USED_ON_MODULES))
        return {it.attr for it in used if isinstance(it, ast.Attribute)}

    def _module_call(self, loop: ast.For) -> ast.Call | None:
        """The first call in a loop's own body of a module, with something that the loop binds."""
        for call in (it for it in ast.walk(loop) if isinstance(it, ast.Call)):
            named = isinstance(call.func, (ast.Name, ast.Attribute)) and self.is_module(call.func)
            if named and next(self._tree.loops(call), None) is loop and self._is_given_batch(call, loop):
                return call
        return None

    def _is_given_batch(self, call: ast.Call, loop: ast.For) -> bool:
        """Whether a call gets a new argument in each pass: bound by a surrounding loop, or fetched there."""
        outermost = list(self._tree.loops(loop))[-1:] or [loop]
        for argument in (*call.args, *(it.value for it in call.keywords)):
            for it in ast.walk(argument):
                if isinstance(it, ast.Call):
                    return True
                if isinstance(it, ast.Name) and any(
                    self._tree.within(binding.node, outermost[0]) for binding in self._names.reaching(it)
                ):
                    return True
        return False

    def _is_called_by_a_trainer(self, function: Function | None) -> bool:
        """Whether Lightning or the like calls the method, and so handles gradients and modes."""
        owner = self._tree.class_of(function) if function is not None else None
        callers = {*known.LIGHTNING_MODULES, *known.TRAINERS}
        return owner is not None and bool(self._calls.base_names(owner) & callers)

    def _needs_gradients(self, loop: ast.For) -> bool:
        """Whether the loop, or its function outside of training loops, trains anything."""
        return any(_mentions_gradients(it) for it in (loop, *self.reached_from(loop)))

    def _is_named(self, loop: ast.For, function: Function | None) -> bool:
        if function is not None and _FUNCTION.search(function.name):
            return True
        return any(_DATA.search(it) for it in _words(loop.iter))

    def _is_switched_before(self, loop: ast.For, function: Function | None) -> bool:
        """Whether ``x.eval()`` precedes the loop in its function, which trains nothing."""
        if function is None or any(self._tree.within(it.node, function) for it in self._training.loops):
            return False
        if _mentions_gradients(function):
            return False
        switches = (call for call, _ in self._calls.methods("eval") if self._tree.function(call) is function)
        return any(it.lineno < loop.lineno for it in switches)


def _words(expression: ast.expr) -> Iterator[str]:
    """The names and attributes in an expression."""
    for it in ast.walk(expression):
        if isinstance(it, ast.Name):
            yield it.id
        elif isinstance(it, ast.Attribute):
            yield it.attr


def _mentions_gradients(node: ast.AST) -> bool:
    for it in ast.walk(node):
        if isinstance(it, ast.Attribute) and (it.attr in _GRADIENTS or _is_gradient_function(it)):
            return True
        if isinstance(it, ast.Call) and _ASKS_FOR_GRADIENTS.search(word(it.func)):
            return True
        if isinstance(it, ast.keyword) and it.arg in ("requires_grad", "create_graph"):
            return True
    return False


def _is_gradient_function(attribute: ast.Attribute) -> bool:
    """``torch.autograd.grad``, ``autograd.grad`` and ``optimizer.step``."""
    match attribute:
        case ast.Attribute(attr="grad", value=ast.Attribute(attr="autograd") | ast.Name(id="autograd")):
            return True
        case ast.Attribute(attr="step", value=ast.Name(id=word) | ast.Attribute(attr=word)):
            return "opt" in word.lower()
    return False
