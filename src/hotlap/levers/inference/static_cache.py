"""Text generation with a cache of fixed size, whose step of one token can be compiled.

## What it does
Calls `generate(..., cache_implementation="static")`: keys and values are written into tensors that have their final
size from the beginning. With `compile=true` the step that adds a token is compiled as well, which needs such a cache,
since each token would change all shapes otherwise. On GPUs transformers compiles it by itself.

## When it helps
Models whose step of one token is bound by Python and by launching small kernels: small models, small batches.

## What it costs
Attention runs over the whole cache, also where it is still empty. Memory for the longest answer is taken at once.
Compiling takes tens of seconds, and again for prompts that need a longer cache. Not all models support it.

## Before
    tokens = model.generate(**prompt, max_new_tokens=100)

## After
    tokens = model.generate(**prompt, max_new_tokens=100, cache_implementation="static")

Compiled on a CPU, where transformers does not do so by itself:

    model.forward = torch.compile(model.forward)
    tokens = model.generate(**prompt, max_new_tokens=100, cache_implementation="static")

## What is proved
`rounding`: attention is summed in another order. Tokens under greedy decoding are compared, and the first difference is
named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.situations import make_setting, without_model
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Text generation with a static cache"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
addresses: tuple[str, ...] = ()
parameters = {"compile": Parameter(bool)}


def obstacle(situation: Situation) -> Skipped | None:
    """Require calls of ``generate()`` that leave the cache open."""
    if without_model(situation):
        return without_model(situation)
    generation = situation.facts.generation
    if generation is None:
        return Skipped(reason="It is for `generate()` of transformers models, which is not called.")
    if generation.cache:
        return Skipped(reason=f"The calls ask for the cache {generation.cache!r} already.", already=True)
    return None


def bound(situation: Situation) -> float | None:
    """What Python and launches take of a token is unknown before it is measured."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Compiled first: the cache alone gains little."""
    return tuple(make_setting("static-cache", compile=it) for it in (True, False))


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The arguments of ``generate()`` are often put together elsewhere."""
    compiled = ", below `model.forward = torch.compile(model.forward)`" if dict(setting.values)["compile"] else ""
    reason = f'Pass cache_implementation="static" to `generate()`{compiled}.'
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Add the argument to each call. The compiled step is that of transformers itself."""
    compiles = bool(dict(setting.values)["compile"])
    given: dict[str, Any] = {"cache_implementation": "static"}

    def add(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if compiles and "compile_config" not in given:
            given["compile_config"] = _compile_config(hooks.device_kind(model) == "cpu")
        return args, {**kwargs, **given, **({} if compiles else {"disable_compile": True})}

    hooks.before_forward.append(add)


def _compile_config(on_cpu: bool) -> Any:
    """The way in which transformers compiles the step of one token.

    On a CPU it does so only where a private attribute asks for it (transformers 4.50 to 5.23); the public alternative,
    compiling ``model.forward``, compiles each length of prompt too.
    """
    from transformers import CompileConfig

    made: Any = CompileConfig(mode="default" if on_cpu else "reduce-overhead", fullgraph=False)
    if on_cpu:
        made._compile_all_devices = True
    return made
