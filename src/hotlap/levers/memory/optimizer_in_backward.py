"""Update each weight as soon as its gradient is known, and free the gradient.

## What it does
Registers a hook on each weight (`register_post_accumulate_grad_hook`) that runs the script's own optimizer on this
weight alone, in the backward pass, and frees the gradient immediately. The gradients of all weights never exist at the
same time. The script's later `optimizer.step()` has no gradients left to apply; schedulers and checkpoints use the same
optimizer and state.

## When it helps
When gradients are a large part of the memory: many weights, small activations, or activations that are recomputed.
It is tried when the goal is memory (`hotlap tune --goal memory`).

## What it costs
One call of the optimizer per weight instead of one for all: a step of many small weights takes longer. It cannot be
combined with anything that needs all gradients at once: clipping by norm, a gradient scaler, gradient accumulation, a
closure, several optimizers, several processes. A script that reads gradients after `backward()` finds none.

## Before
    loss.backward()
    optimizer.step()

## After
    def update(weight):
        optimizers[weight].step()
        weight.grad = None

    optimizers = {it: torch.optim.AdamW([it], lr=1e-3) for it in model.parameters()}
    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(update)
    loss.backward()

## What is proved
`exact`: each weight gets the same update from the same gradient. The losses must agree to the last bit.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from hotlap.levers.support.independent_updates import KINDS, reason_against
from hotlap.levers.support.situations import make_setting, without_model
from hotlap.records import PEAK_BYTES, NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Fetch, Hooks

title = "Update each weight in the backward pass, and free its gradient"
proof: Proof = "exact"
improves = (PEAK_BYTES,)
addresses = ("close-to-limit", "allocator-retries")
parameters: dict[str, Parameter] = {}


def obstacle(situation: Situation) -> Skipped | None:
    """One optimizer that updates each weight independently, and nothing that needs all gradients at once."""
    facts = situation.facts
    if without_model(situation):
        return without_model(situation)
    reason = _reason_against(facts)
    return Skipped(reason=reason) if reason else None


def bound(situation: Situation) -> float | None:
    """It makes no step faster."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There is nothing to choose."""
    return (make_setting("optimizer-in-backward"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: the loop would need one optimizer per weight."""
    reason = "The loop, its scheduler and its checkpoints would have to handle one optimizer per weight."
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Register a hook on each weight of the first optimizer; remove them if a second one or a closure appears."""
    in_backward = _InBackward(hooks)
    hooks.after_optimizer.append(in_backward.made)
    hooks.around_step.append(in_backward.around_step)
    hooks.before_clip.append(lambda parameters, limit: in_backward.refuse("gradients are clipped"))


class _InBackward:
    """The updates of one optimizer, weight by weight.

    A refusal in the middle of a backward pass would leave half of the weights updated, so everything that can be
    refused is refused before the first update.
    """

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._handles: list[Any] = []
        self._optimizers = 0
        self._refused = False
        self._steps_running = 0

    def made(self, optimizer: Any) -> None:
        self._optimizers += 1
        kind = type(optimizer)
        if self._optimizers > 1:
            self.refuse("the script has several optimizers")
        elif reason_against(optimizer):
            self.refuse(reason_against(optimizer))
        elif not self._refused:
            update = functools.partial(self._update, optimizer, inspect.unwrap(kind.step))
            for weight in [it for group in optimizer.param_groups for it in group["params"]]:
                if weight.requires_grad:
                    self._handles.append(weight.register_post_accumulate_grad_hook(update))

    def around_step(self, optimizer: Any, step: Fetch) -> Any:
        self._steps_running += 1
        try:
            return step()
        finally:
            self._steps_running -= 1

    def refuse(self, reason: str) -> None:
        if not self._refused:
            self._hooks.note(f"Weights are updated after the backward pass, not in it: {reason}.")
        self._refused = True
        while self._handles:
            self._handles.pop().remove()

    def _update(self, optimizer: Any, step: Any, weight: Any) -> None:
        """Run the optimizer's own update of one weight, without the hooks that count steps."""
        if self._refused:
            return
        if self._steps_running:
            self.refuse("the optimizer is given a closure")
            return
        groups = optimizer.param_groups
        own = next(group for group in groups if any(it is weight for it in group["params"]))
        optimizer.param_groups = [{**own, "params": [weight]}]
        try:
            with self._hooks.torch.no_grad():
                step(optimizer)
        finally:
            optimizer.param_groups = groups
        weight.grad = None


def _reason_against(facts: ScriptFacts) -> str:
    """Why the weights cannot be updated in the backward pass; empty if they can."""
    optimizers = facts.optimizers
    if not optimizers:
        return "The script uses no optimizer of torch."
    if len(optimizers) > 1:
        return "The script has several optimizers, and which of them owns a gradient depends on the loop."
    (optimizer,) = optimizers
    if optimizer.kind not in KINDS or not optimizer.from_torch:
        return f"{optimizer.kind} may not update each weight independently."
    if facts.clips_gradients:
        return "The script clips gradients, which needs all of them at once."
    if facts.grad_scaler:
        return "The script scales its loss, and the scaler checks all gradients before it lets the optimizer step."
    if facts.step_source != "optimizer" or round(facts.backwards_per_step) > 1:
        return "The script runs several backward passes per step, and only the last gradient is complete."
    if facts.processes > 1:
        return "Several processes train, and their gradients are averaged after the backward pass."
    return ""
