"""Find training loops, and the code that runs in their steps.

A loop trains if its body calls backward or an optimizer's step, directly or through a function of this file. Of nested
loops it is the innermost around such a call whose passes are the steps. Code is *hot* if it runs in such a loop, or in
a function that is called from there, also through a few others, or in Lightning's ``training_step``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hotlap.source.lint.model import torch_names as known
from hotlap.source.lint.model.calls import Calls
from hotlap.source.lint.model.guards import Frequency, Guards, rarer
from hotlap.source.lint.model.kinds import Kinds
from hotlap.source.lint.model.tree import FUNCTIONS, LOOPS, Function, Loop, Tree

Repeated: TypeAlias = Loop | Function
_OPTIMIZER_NAME = re.compile(r"optim|(^|_)opt(_|s?$|\d)", re.IGNORECASE)
_STEP_METHODS = ("training_step", "compute_loss")
_MOST_CALLS = 4
"""The largest number of calls between a loop and code in its steps."""
_RARITY: dict[Frequency, int] = {"every_step": 0, "unknown": 1, "interval": 2}


@dataclass(frozen=True, slots=True, eq=False)
class TrainingLoop:
    """A loop whose passes are training steps; for Lightning and the like the method that is called in each step.

    ``evidence`` shows that it trains: the call of backward or of an optimizer's step, in source order.
    """

    node: Repeated
    evidence: tuple[ast.AST, ...]


@dataclass(frozen=True, slots=True)
class HotPlace:
    """The place of a node in the steps of a training loop, and how often it runs.

    ``frequency`` is ``every_step``, ``interval`` (guarded, as by ``if step % n == 0``), or ``unknown`` (guarded by an
    unknown condition). ``call`` is the call in the loop that leads to the node, if that is in another function.
    """

    loop: TrainingLoop
    frequency: Frequency
    call: ast.Call | None = None

    @property
    def every_step(self) -> bool:
        """Whether it runs in every step."""
        return self.frequency == "every_step"


class Training:
    """The training loops of one file, and its hot code."""

    def __init__(self, tree: Tree, calls: Calls, kinds: Kinds, guards: Guards) -> None:
        self._tree = tree
        self._calls = calls
        self._kinds = kinds
        self._guards = guards
        self._hot: dict[ast.AST, HotPlace | None] = {}
        self._called: dict[tuple[ast.AST, int], HotPlace | None] = {}
        self.backward_calls: Sequence[ast.Call] = tuple(self._backward_calls())
        self.optimizer_steps: Sequence[ast.Call] = tuple(self._optimizer_steps())
        self.loops: Sequence[TrainingLoop] = tuple(self._find())
        self._by_node = {it.node: it for it in self.loops}

    def hot_place(self, node: ast.AST) -> HotPlace | None:
        """Where and how often a node runs in training steps; None where it is not known to."""
        if node not in self._hot:
            here = self._hot_here(node)
            self._hot[node] = here if here is not None else self._hot_by_call(node)
        return self._hot[node]

    def loop_of(self, node: ast.AST) -> TrainingLoop | None:
        """The training loop whose body contains a node."""
        place = self._hot_here(node)
        return place.loop if place is not None else None

    def around_training(self, loop: Loop) -> bool:
        """Whether a loop has training steps inside it, its own or those of a loop within: epochs do."""
        return any(
            self._tree.within(it.node, loop) or any(self._calls_into(call, loop) for call in self._callers_of(it))
            for it in self.loops
        )

    # -- evidence ---------------------------------------------------------------------------------

    def _backward_calls(self) -> list[ast.Call]:
        found = []
        for call, function in self._calls.methods_everywhere("backward", "manual_backward"):
            within = self._tree.function(call)
            # A Function's own backward, or a wrapper of that name, calls others of that name; it is not a step.
            if within is not None and within.name == "backward":
                continue
            receiver = function.value.func if isinstance(function.value, ast.Call) else None
            if not (isinstance(receiver, ast.Name) and receiver.id == "super"):
                found.append(call)
        return found

    def _optimizer_steps(self) -> list[ast.Call]:
        found = []
        for call, function in self._calls.methods_everywhere("step"):
            kind = self._kinds.kind(function.value)
            if kind == "optimizer" or (kind == "scaler" and call.args) or self._acts_as_optimizer(function.value, call):
                found.append(call)
        return found

    def _acts_as_optimizer(self, receiver: ast.expr, call: ast.Call) -> bool:
        """Calls of ``step`` on an optimizer, or with one: ``scaler.step(optimizer)``."""
        if self._kinds.kind(receiver) is not None:
            return False
        match receiver:
            case ast.Name(id=word) | ast.Attribute(attr=word):
                pass
            case _:
                return False
        if _OPTIMIZER_NAME.search(word):
            return True
        first = call.args[0] if call.args else None
        return isinstance(first, (ast.Name, ast.Attribute)) and bool(
            _OPTIMIZER_NAME.search(first.id if isinstance(first, ast.Name) else first.attr)
        )

    def _find(self) -> list[TrainingLoop]:
        evidence: dict[Repeated, list[ast.AST]] = {}
        for call in (*self.backward_calls, *self.optimizer_steps):
            loop = self._innermost(call)
            if loop is not None:
                evidence.setdefault(loop, []).append(call)
                continue
            for caller, around in self._loops_around_callers(call):
                evidence.setdefault(around, []).append(caller)
        for owner in self._calls.classes_everywhere(*known.LIGHTNING_MODULES, *known.TRAINERS):
            for statement in owner.body:
                if isinstance(statement, FUNCTIONS) and statement.name in _STEP_METHODS:
                    evidence.setdefault(statement, []).append(statement)
        found = [TrainingLoop(node, tuple(sorted(them, key=_position))) for node, them in evidence.items()]
        return sorted(found, key=lambda it: _position(it.node))

    def _loops_around_callers(self, node: ast.AST) -> Iterator[tuple[ast.Call, Loop]]:
        """The innermost loops around the calls that lead to a node outside of loops, with the calls."""
        waiting = [self._tree.function(node)]
        seen: set[ast.AST] = set()
        for _ in range(_MOST_CALLS):
            functions = [it for it in waiting if it is not None and it not in seen]
            seen.update(functions)
            waiting = []
            for caller in (call for it in functions for call in self._calls.callers(it)):
                around = self._innermost(caller)
                if around is not None:
                    yield caller, around
                else:
                    waiting.append(self._tree.function(caller))

    def _innermost(self, node: ast.AST) -> Loop | None:
        """The innermost loop that repeats a node, through functions that are defined within the loop."""
        here: ast.AST | None = node
        while here is not None:
            found = next(self._tree.loops(here), None)
            if found is not None:
                return found
            here = self._tree.function(here)
            if here is not None and not any(isinstance(it, LOOPS) for it in self._tree.ancestors(here)):
                return None
        return None

    # -- hot code ---------------------------------------------------------------------------------

    def _hot_here(self, node: ast.AST) -> HotPlace | None:
        """Find the place by the loops around a node, or its step method."""
        child = node
        for above in self._tree.ancestors(node):
            loop = self._by_node.get(above)  # type: ignore[call-overload]
            if loop is not None and self._in_body(above, child):
                return HotPlace(loop, self._guards.frequency(node, above))
            if isinstance(above, (*FUNCTIONS, ast.Lambda, ast.ClassDef)) and not self._within_loop(above):
                return None
            child = above
        return None

    def _hot_by_call(self, node: ast.AST, calls: int = _MOST_CALLS) -> HotPlace | None:
        """Find the place by the calls of a node's function; of several, the one that runs it most often."""
        function = self._tree.function(node)
        if function is None or not calls or not any(it is function for it in self._function_bodies(node)):
            return None
        if (function, calls) not in self._called:
            self._called[function, calls] = None
            self._called[function, calls] = self._hottest_call(function, calls)
        place = self._called[function, calls]
        if place is None:
            return None
        return HotPlace(place.loop, rarer(place.frequency, self._guards.frequency(node, function)), place.call)

    def _hottest_call(self, function: Function, calls: int) -> HotPlace | None:
        """The place of the call that runs a function most often."""
        found: list[HotPlace] = []
        for call in self._calls.callers(function):
            place = self._hot_here(call)
            if place is not None:
                found.append(HotPlace(place.loop, place.frequency, call))
            elif (further := self._hot_by_call(call, calls - 1)) is not None:
                found.append(further)
        return min(found, key=lambda it: _RARITY[it.frequency], default=None)

    def _function_bodies(self, node: ast.AST) -> list[Function]:
        """The functions whose body, not whose decorators or defaults, a node is in."""
        child = node
        found: list[Function] = []
        for above in self._tree.ancestors(node):
            if isinstance(above, FUNCTIONS) and child in above.body:
                found.append(above)
            child = above
        return found

    @staticmethod
    def _in_body(above: ast.AST, child: ast.AST) -> bool:
        if isinstance(above, ast.While):
            return child is above.test or child in above.body
        return isinstance(above, (*FUNCTIONS, ast.For, ast.AsyncFor)) and child in above.body

    def _within_loop(self, node: ast.AST) -> bool:
        return any(it in self._by_node and isinstance(it, LOOPS) for it in self._tree.ancestors(node))

    def _callers_of(self, loop: TrainingLoop) -> Sequence[ast.Call]:
        function = self._tree.function(loop.node)
        return self._calls.callers(function) if function is not None else ()

    def _calls_into(self, call: ast.Call, loop: Loop) -> bool:
        return any(it is loop for it in self._tree.loops(call))


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
