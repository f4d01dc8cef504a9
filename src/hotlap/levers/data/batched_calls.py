"""Several inputs in one call of the model.

## What it does
Concatenates up to `inputs` consecutive inputs along their first dimension, calls the model once, and cuts its outputs
apart. Inputs share a call if their tensors differ in nothing but the size of that dimension.

## When it helps
Small models and small batches: what a call costs regardless of its size (Python, launching kernels, reading weights)
is paid once for several inputs. Large batches that keep all cores busy gain nothing.

## What it costs
Latency: a call takes longer, and an answer waits for the other inputs of its call. A server has to collect requests
first (dynamic batching). It is tried where samples per second are the goal, and not with `--goal latency` or `--p99`.
Memory for activations grows with the batch.

## Before
    outputs = [model(it) for it in inputs]

## After
    batches = [torch.cat(inputs[start : start + 4]) for start in range(0, len(inputs), 4)]
    outputs = torch.cat([model(it) for it in batches])

## What is proved
`rounding`: kernels for other shapes round differently. The rows of each input are compared with what the model returns
for that input alone, so that a model whose samples influence one another is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.situations import make_setting, without_model
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Several inputs in one call of the model"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
addresses: tuple[str, ...] = ()
parameters = {"inputs": Parameter(int, minimum=2, maximum=1024)}
lengthens_calls = True


def obstacle(situation: Situation) -> Skipped | None:
    """Require single calls that hotlap makes, with inputs that can be concatenated."""
    if without_model(situation):
        return without_model(situation)
    facts = situation.facts
    if facts.calls_in_script:
        return Skipped(reason="A script forms its own batches; the report says where it calls with one sample each.")
    if facts.generation is not None:
        return Skipped(reason="Prompts of `generate()` are batched by `batched-prompts`.")
    if facts.lengths is not None and facts.lengths.whole_passes:
        return Skipped(reason="With `--lengths` batches keep their size, and `length-bucketing` forms them.")
    if not facts.shared_calls:
        return Skipped(reason="No two consecutive inputs can share a call: they differ in more than their rows.")
    return None


def bound(situation: Situation) -> float | None:
    """What a call costs regardless of its size is unknown before it is measured."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """The sizes that the inputs allow."""
    return tuple(make_setting("batched-calls", inputs=most) for most, _ in situation.facts.shared_calls)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Batches are formed by the user's own code."""
    return (NoSourceForm(reason="Form batches where you call the model, as `hotlap levers batched-calls` shows."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Set how the program forms its calls."""
    hooks.inputs_per_call = int(dict(setting.values)["inputs"])
