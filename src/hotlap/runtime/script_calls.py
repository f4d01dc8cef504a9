"""The calls of a model in a script of the user's, as units of work.

The model is the first outermost module with parameters that the script calls twice without training it: under
``torch.no_grad()`` or the like or, where it made no optimizer, with gradients, which is noted. The first of these calls
is left alone; from the second on each call is a unit. Until the model is known ``nn.Module.__call__`` is watched, then
only the model's own class is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from hotlap.runtime.inference import behaves_otherwise
from hotlap.runtime.interception import Interception
from hotlap.runtime.outputs import consume

COMPARED_CALLS: Final = 32
"""Of how many calls outputs are compared."""

Call = Callable[..., Any]


class ScriptCalls:
    """Finds the model and passes its calls through the hooks."""

    def __init__(self, interception: Interception) -> None:
        self._hooks = interception.hooks
        self._roots = interception.roots
        self._patches = interception.patches
        self._torch = interception.hooks.torch
        self._plain: Call = self._torch.nn.Module.__call__
        self._is_compiling: Callable[[], bool] = self._torch.compiler.is_dynamo_compiling
        self._seen: Counter[int] = Counter()
        self._model: Any = None
        self._inside = False
        self._trains = False
        self._notes_gradients = True

    def install(self) -> None:
        """Watch all modules until the model is known."""
        self._hooks.inputs, self._hooks.calls_in_script = COMPARED_CALLS, True
        self._hooks.after_optimizer.append(self._optimizer_made)
        watch = self

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if watch._inside or watch._is_compiling():
                return watch._plain(self, *args, **kwargs)
            if watch._is_call(self):
                watch._seen[id(self)] += 1
                if watch._seen[id(self)] > 1:
                    watch._settle(self)
                    return watch._unit(watch._plain, args, kwargs)
            return watch._shielded(watch._plain, self, args, kwargs)

        self._patches.replace(self._torch.nn.Module, "__call__", call)

    def _optimizer_made(self, optimizer: Any) -> None:
        self._trains = True

    def _is_call(self, module: Any) -> bool:
        if self._torch.is_grad_enabled() and self._trains:
            return False
        return next(iter(module.parameters()), None) is not None

    def _settle(self, model: Any) -> None:
        """Put the wrapper on the class of the model, and tell the levers."""
        self._model = model
        self._patches.replace(self._torch.nn.Module, "__call__", self._plain)
        kind = type(model)
        plain: Call = kind.__call__  # the inherited one, unless the class has its own
        watch = self

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self is not watch._model or watch._inside or watch._is_compiling():
                return plain(self, *args, **kwargs)
            return watch._unit(plain, args, kwargs)

        self._patches.replace(kind, "__call__", call)
        if model.training and any(behaves_otherwise(it) for it in model.modules()):
            self._hooks.note(
                f"The script calls {kind.__name__} in training mode, in which dropout and batch norm behave otherwise: "
                "call model.eval() before, unless that is meant."
            )
        with self._torch.no_grad():
            self._roots.settle(model)

    def _unit(self, plain: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call: levers, the model, and what is told about it."""
        hooks, model = self._hooks, self._model
        if self._notes_gradients and self._torch.is_grad_enabled():
            hooks.note(
                f"The calls of {type(model).__name__} record gradients, which takes time and memory: call the model "
                "under `with torch.inference_mode():`."
            )
        self._notes_gradients = False
        for prepare in hooks.before_forward:
            args, kwargs = prepare(model, args, kwargs)
        with ExitStack() as stack:
            for enter in hooks.around_calls:
                stack.enter_context(enter())
            output = self._shielded(plain, model, args, kwargs)
        consume(output)
        for leave in hooks.back_to_script:
            leave()
        for tell in hooks.after_forward:
            tell(model, output)
        for finish in hooks.call_ended:
            finish()
        return output

    def _shielded(self, plain: Call, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Modules called within the module are no units."""
        self._inside = True
        try:
            return plain(module, *args, **kwargs)
        finally:
            self._inside = False
