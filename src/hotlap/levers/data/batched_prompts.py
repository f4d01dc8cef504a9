"""Several prompts in one call of `generate()`.

## What it does
Puts `prompts` prompts into one batch, padded at their left, with an attention mask. Each token of the batch reads the
model's weights once, instead of once for each prompt.

## When it helps
Where many prompts are waiting: a data set, or a queue of requests. Generation with one prompt at a time is bound by
reading weights, and a batch costs little more per step.

## What it costs
An answer waits until all of its batch are complete, and the first token comes later. Short answers are padded until the
longest one ends. Servers for language models (vLLM, SGLang) let prompts join and leave a running batch instead.

## Before
    answers = [model.generate(**tokenizer(it, return_tensors="pt"), max_new_tokens=100) for it in prompts]

## After
    tokenizer.padding_side = "left"
    batch = tokenizer(prompts, padding=True, return_tensors="pt")
    answers = model.generate(**batch, max_new_tokens=100)

## What is proved
`rounding`: padding takes no part in masked attention, but sums of other shapes round differently. Tokens under greedy
decoding are compared, prompt by prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.situations import make_setting, without_model
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Several prompts in one call of generate()"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
addresses: tuple[str, ...] = ()
parameters = {"prompts": Parameter(int, minimum=2, maximum=1024)}
lengthens_calls = True

_TRIED = (16, 4)


def obstacle(situation: Situation) -> Skipped | None:
    """Require several prompts that can share a call."""
    if without_model(situation):
        return without_model(situation)
    generation = situation.facts.generation
    if generation is None:
        return Skipped(reason="It is for `generate()` of transformers models, which is not called.")
    if generation.unbatched:
        return Skipped(reason=generation.unbatched)
    return None


def bound(situation: Situation) -> float | None:
    """What reading weights takes of a token is unknown before it is measured."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """No more than there are."""
    generation = situation.facts.generation
    prompts = generation.prompts if generation is not None else 0
    sizes = dict.fromkeys(min(it, prompts) for it in _TRIED)
    return tuple(make_setting("batched-prompts", prompts=it) for it in sizes if it > 1)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Batches are formed by the user's own code."""
    return (NoSourceForm(reason="Form batches where you tokenize, as `hotlap levers batched-prompts` shows."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Set how the program forms its calls."""
    hooks.prompts_per_call = int(dict(setting.values)["prompts"])
