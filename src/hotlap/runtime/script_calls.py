"""The calls of a model in a script of the user's, as units of work.

The model is the first outermost module with parameters that the script calls twice without training it: under
``torch.no_grad()`` or the like or, where it made no optimizer, with gradients, which is noted. The first of these calls
is left alone; from the second on each call is a unit. Until the model is known ``nn.Module.__call__`` is watched, then
only the model's own class is. Where ``generate()`` of a transformers model makes the calls, its own calls are the
units.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from hotlap.records import GenerationFacts
from hotlap.runtime.interception import Interception
from hotlap.runtime.outputs import consume
from hotlap.runtime.prompts import draws
from hotlap.runtime.tokens import Tokens, can_generate

COMPARED_CALLS: Final = 32
"""Of how many calls outputs are compared."""

Call = Callable[..., Any]

_OF_A_SCRIPT: Final = "A script forms its own batches."
_MOST_FRAMES: Final = 60


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
            if can_generate(self) and _is_generating(self):
                watch._settle_generation(self)
            elif watch._is_call(self):
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

    def _settle_generation(self, model: Any) -> None:
        """Put the wrapper on ``generate()`` of the model's class. The call that goes on is left alone."""
        self._model, self._notes_gradients = model, False
        self._patches.replace(self._torch.nn.Module, "__call__", self._plain)
        kind = type(model)
        plain: Call = kind.generate
        watch = self

        @functools.wraps(plain)
        def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self is not watch._model or watch._inside:
                return plain(self, *args, **kwargs)
            if watch._hooks.generation is None:
                watch._generation_begins(kwargs)
            assert watch._hooks.generation is not None
            return watch._unit(functools.partial(watch._hooks.generation.call, plain), args, kwargs)

        self._patches.replace(kind, "generate", generate)

    def _generation_begins(self, kwargs: dict[str, Any]) -> None:
        """Before the first call that is a unit."""
        config = kwargs.get("generation_config") or self._model.generation_config
        cache = kwargs.get("cache_implementation", config.cache_implementation) or ""
        facts = GenerationFacts(draws=draws(self._model, kwargs), cache=str(cache), unbatched=_OF_A_SCRIPT)
        self._hooks.generation = Tokens(self._torch, facts)
        self._found(self._model)

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
        self._found(model)

    def _found(self, model: Any) -> None:
        """Tell the levers."""
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
        for convert in hooks.output_to_script:
            output = convert(output)
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


def _is_generating(model: Any) -> bool:
    """Whether a call of the model is made by its own ``generate()``."""
    frame = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        if frame.f_code.co_name == "generate" and frame.f_locals.get("self") is model:
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False
