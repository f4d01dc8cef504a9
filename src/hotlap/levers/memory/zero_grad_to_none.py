"""Gradients are dropped between steps instead of filled with zeros.

## What it does
Has `zero_grad(set_to_none=False)`, of optimizers and of models, set gradients to `None`, which is torch's default. The
gradients of the last step then take no memory during the forward pass, and backward writes each new one instead of
reading zeros and adding to them.

## When it helps
When the peak of memory is reached in the forward pass, or when filling and adding takes a visible share of a step: many
weights and small batches.

## What it costs
Nothing where each weight gets a gradient in each step. A weight that gets none is then left alone, where an optimizer
would have updated it by its momentum or weight decay: the comparison of losses shows that. A script that reads `.grad`
right after `zero_grad()` finds `None`.

## Before
    optimizer.zero_grad(set_to_none=False)

## After
    optimizer.zero_grad()

## What is proved
`exact`: a gradient added to zeros is that gradient. The losses must agree to the last bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hotlap.levers.support.situations import bound_of_computing, make_setting
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    NoSourceForm,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
)

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Hooks

title = "Gradients are dropped between steps instead of filled with zeros"
proof: Proof = "exact"
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("close-to-limit", "allocator-retries")
parameters: dict[str, Parameter] = {}


def obstacle(situation: Situation) -> Skipped | None:
    """A script that asks for zeros."""
    if situation.facts.zeroes_gradients:
        return None
    return Skipped(reason="The script never calls zero_grad(set_to_none=False).", already=True)


def bound(situation: Situation) -> float | None:
    """What this process computes may get faster; waiting for workers may not."""
    return bound_of_computing(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There is nothing to choose."""
    return (make_setting("zero-grad-to-none"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The lint rule for it has the edit."""
    return (NoSourceForm(reason="`hotlap lint --select HL602 --unsafe-fixes --fix` removes set_to_none=False."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """For all optimizers and models; what a subclass does before it calls torch's own method stays."""
    for owner in (hooks.torch.optim.Optimizer, hooks.torch.nn.Module):
        owner.zero_grad = _dropping(owner.zero_grad)


def _dropping(zero_grad: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(zero_grad)
    def drop(owner: Any, set_to_none: bool = True) -> None:
        zero_grad(owner, set_to_none=True)

    return drop
