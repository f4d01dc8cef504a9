"""Drop the gradients of the last update before the next forward pass.

## What it does
Sets gradients to `None` when the next forward pass of the model begins, of training or of an evaluation, where the
script itself clears them only after it, before `backward()`. It begins once two steps have shown that the script does
clear them there, and stops for an optimizer whose gradients are still held when a backward pass begins, since they are
added to.

## When it helps
When memory peaks at the end of the forward pass or in an evaluation: the gradients, as large as the weights, are then
held although nothing uses them. Many scripts call `optimizer.zero_grad()` between the forward pass and `backward()`.

## What it costs
Nothing, unless the script reads `.grad` after the next forward pass has begun: it gets `None`.

## Before
    loss = criterion(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

## After
    optimizer.zero_grad()
    loss = criterion(model(inputs), targets)
    loss.backward()
    optimizer.step()

## What is proved
`exact`: the script clears these gradients itself before they could be used again. The losses must agree to the last
bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotlap.levers.support.situations import make_setting
from hotlap.levers.support.used_gradients import UsedGradients
from hotlap.records import (
    PEAK_BYTES,
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
    from hotlap.runtime.hooks import Fetch, Hooks

title = "Drop used gradients before the next forward pass"
proof: Proof = "exact"
improves = (PEAK_BYTES,)
addresses = ("close-to-limit", "allocator-retries")
parameters: dict[str, Parameter] = {}


def obstacle(situation: Situation) -> Skipped | None:
    """Require used gradients that are held during a forward pass and cleared before the next backward pass."""
    facts = situation.facts
    if facts.used_gradient_bytes:
        return None
    if facts.zeroes_gradients:
        return Skipped(reason="The script fills its gradients with zeros and keeps them.")
    if facts.keeps_gradients:
        return Skipped(reason="Gradients of an update are still held when the next backward pass begins.")
    return Skipped(reason="No gradients of the last update are held during a forward pass.", already=True)


def bound(situation: Situation) -> float | None:
    """It makes no step faster."""
    return 1.0 if situation.account.wall > 0 else None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There is nothing to choose."""
    return (make_setting("drop-used-gradients"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The call has to move."""
    return (NoSourceForm(reason="Move `optimizer.zero_grad()` before the forward pass, or right behind the update."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Drop gradients before each forward pass of a root, where earlier steps have shown that nothing needs them."""
    used = UsedGradients()

    def before_forward(
        root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        used.drop()
        return args, kwargs

    def around_evaluation(root: Any, evaluate: Fetch) -> Any:
        used.drop()
        return evaluate()

    hooks.after_update.append(used.updated)
    hooks.before_backward.append(used.backward_begins)
    hooks.before_forward.append(before_forward)
    hooks.around_evaluation.append(around_evaluation)
