"""Calls under `torch.inference_mode` instead of `torch.no_grad`.

## What it does
Runs the calls under `torch.inference_mode()`. Tensors created there have no version counter and no bookkeeping for
views, and can never take part in a backward pass.

## When it helps
Models with many small operations, of which bookkeeping is a notable part.

## What it costs
An output cannot be used in training later, and changing it in place outside of the mode raises an error.

## Before
    with torch.no_grad():
        output = model(inputs)

## After
    with torch.inference_mode():
        output = model(inputs)

## What is proved
`exact`: outputs agree to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.situations import make_setting, without_model
from hotlap.records import CallRegion, NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Calls under torch.inference_mode"
proof: Proof = "exact"
work: tuple[Work, ...] = ("inference",)
addresses: tuple[str, ...] = ()
parameters: dict[str, Parameter] = {}


def obstacle(situation: Situation) -> Skipped | None:
    """A model to call."""
    return without_model(situation)


def bound(situation: Situation) -> float | None:
    """The share of bookkeeping is unknown before it is measured."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There are no parameters."""
    return (make_setting("inference-mode"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Replace ``torch.no_grad()`` around the calls of a script, or wrap them; of a target the loop is hotlap's own."""
    if not facts.calls_in_script:
        return (NoSourceForm(reason="Call the model under `with torch.inference_mode():`."),)
    needs = ("torch.inference_mode",)
    return (CallRegion(context="torch.inference_mode()", needs=needs, already="inference_mode", replaces="no_grad"),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Enter the mode once around all calls, or in a script around each."""
    hooks.around_calls.append(hooks.torch.inference_mode)
