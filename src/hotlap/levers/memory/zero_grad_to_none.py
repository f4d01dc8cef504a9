"""Drop gradients between steps instead of filling them with zeros.

## What it does
Makes `zero_grad(set_to_none=False)`, of optimizers and of models, set gradients to `None`, which is torch's default.
The gradients of the last step then use no memory during the forward pass, and backward writes each new gradient instead
of adding it to zeros.

## When it helps
When memory peaks in the forward pass, or when filling and adding take a noticeable share of a step: many weights and
small batches.

## What it costs
Nothing if each weight gets a gradient in each step. A weight without a gradient is then not updated, where momentum or
weight decay would have updated it: the comparison of losses shows that. A script that reads `.grad` right after
`zero_grad()` gets `None`.

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

title = "Drop gradients between steps instead of filling them with zeros"
proof: Proof = "exact"
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("close-to-limit", "allocator-retries")
parameters: dict[str, Parameter] = {}


def obstacle(situation: Situation) -> Skipped | None:
    """Require a script that fills gradients with zeros."""
    if situation.facts.zeroes_gradients:
        return None
    return Skipped(reason="The script never calls zero_grad(set_to_none=False).", already=True)


def bound(situation: Situation) -> float | None:
    """Computation in this process may become faster; waiting for workers may not."""
    return bound_of_computing(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There is nothing to choose."""
    return (make_setting("zero-grad-to-none"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The lint rule for it has the edit."""
    return (NoSourceForm(reason="`hotlap lint --select HL602 --unsafe-fixes --fix` removes set_to_none=False."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Wrap torch's own method for all optimizers and models; overrides of subclasses still run."""
    for owner in (hooks.torch.optim.Optimizer, hooks.torch.nn.Module):
        owner.zero_grad = _dropping(owner.zero_grad)


def _dropping(zero_grad: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(zero_grad)
    def drop(owner: Any, set_to_none: bool = True) -> None:
        zero_grad(owner, set_to_none=True)

    return drop
