"""Compute several micro-batches of an accumulating script in one pass.

## What it does
Where a script accumulates the gradients of several micro-batches before each update, fetches some of them ahead, runs
the model once on all of them, and hands the script the outputs of one after the other. The script computes each
micro-batch's loss itself, so that means over tokens, weights and a short last batch count as before, and calls backward
on each; the last call computes the gradients of the weights for all. Updates, clipping, loss scaling, schedulers and
logging see the same steps, and the effective batch stays the script's own.

It begins after a step that has shown which tensors of a batch the model is given. Inputs that are not those of the
loader (changed on the way, other than moved to a device or to another number format) are noticed, and their micro-batch
is computed by itself.

## When it helps
If the micro-batches are smaller than they need to be: for each, a step pays the fixed costs of every layer again.

## What it costs
The activations of several micro-batches are in memory at once. Batches are fetched earlier, so an error in the data set
is raised earlier. Dropout draws other random numbers, from the same distribution. Gradients of weights are complete
only after the last micro-batch: a script that reads them in between sees none. Batch norm computes statistics over a
micro-batch, so a model with batch norm is not changed, nor is a model that computes its loss itself. If an update comes
in the middle of such a pass, or the last micro-batch of a step is skipped (since its loss is NaN, for instance), the
run ends with an error that says so, and trains nothing wrong.

## Before
    loader = DataLoader(dataset, batch_size=4)
    for number, (inputs, targets) in enumerate(loader, start=1):
        (criterion(model(inputs), targets) / 8).backward()
        if number % 8 == 0:
            optimizer.step()
            optimizer.zero_grad()

## After
    loader = DataLoader(dataset, batch_size=16)
    for number, (inputs, targets) in enumerate(loader, start=1):
        (criterion(model(inputs), targets) / 2).backward()
        if number % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()

## What is proved
`rounding`: sums over the batch are added up in another order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.api import Parameter
from hotlap.levers.support.merging import Merging
from hotlap.levers.support.situations import make_setting, without_model
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Compute several micro-batches in one pass"
proof: Proof = "rounding"
addresses = ("python-overhead", "launch-bound", "small-operators")
parameters = {"micro_batches": Parameter(int, minimum=2), "merged": Parameter(int, minimum=2)}

NAME = "larger-micro-batches"
_NEARLY_WHOLE = 0.05
"""A short last step of an epoch moves the mean number of backward passes a little off the usual number."""


def obstacle(situation: Situation) -> Skipped | None:
    """Require accumulation in one process, fed by a loader, of a model that treats each sample independently."""
    facts = situation.facts
    if without_model(situation):
        return without_model(situation)
    if round(facts.backwards_per_step) < 2 or facts.step_source != "optimizer":
        return Skipped(reason="The script accumulates no gradients: each optimizer step has one backward pass.")
    if not candidates(situation):
        return Skipped(reason="The number of backward passes per optimizer step changes.")
    if len(facts.models) > 1 or len(facts.optimizers) != 1:
        return Skipped(reason="Several models or optimizers train, whose passes may depend on one another.")
    if facts.processes > 1:
        return Skipped(reason="Several processes train: their wrapper of the model takes one forward pass each.")
    if len(facts.training_loaders) != 1:
        return Skipped(reason="The micro-batches do not come from one DataLoader, so none can be fetched ahead.")
    (model,) = facts.models
    if model.batch_norms:
        return Skipped(reason=f"{model.kind} has batch norm, whose statistics would be those of larger micro-batches.")
    if model.compiled:
        return Skipped(reason="The script compiles its model for its micro-batches.")
    if not model.outputs_by_sample:
        reason = "has outputs without one entry per sample (such as its own loss): how to weight them is unknown."
        return Skipped(reason=f"{model.kind} {reason}")
    return None


def bound(situation: Situation) -> float | None:
    """What larger micro-batches can give is not bounded by the phases of a step."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """All micro-batches of a step at once, and half of them."""
    found = situation.facts.backwards_per_step
    each = round(found)
    if each < 2 or abs(found - each) > _NEARLY_WHOLE * found:
        return ()
    sizes = [each, *([each // 2] if each % 2 == 0 and each > 2 else [])]
    return tuple(make_setting(NAME, micro_batches=each, merged=it) for it in sizes)


def changes_randomness(situation: Situation, setting: Setting) -> bool:
    """Whether a data set draws random numbers while fetching, which now happens earlier."""
    return any(loader.draws_random for loader in situation.facts.loaders)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Batch size and accumulation have to change together, and so does what the loss is divided by."""
    merged = dict(setting.values)["merged"]
    reason = f"Make the loader's batch size {merged} times as large and accumulate {merged} times fewer micro-batches."
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Fetch the micro-batches of a pass together, and replace the model's ``forward`` while the script calls it."""
    values = dict(setting.values)
    merging = Merging(hooks, each=int(values["micro_batches"]), merged=int(values["merged"]))
    hooks.around_loader_start.append(merging.loader_starts)
    hooks.around_fetch.append(merging.fetch)
    hooks.before_forward.append(merging.before_forward)
    hooks.after_forward.append(merging.after_forward)
    hooks.forward_failed.append(merging.forward_failed)
    hooks.before_backward.append(merging.before_backward)
    hooks.before_update.append(merging.before_update)
    hooks.after_update.append(merging.after_update)
