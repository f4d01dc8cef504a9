"""Exchange gradients once per optimizer step, not for each micro-batch.

## What it does
Turns the exchange of gradients off in all but the last backward pass of a step, as `no_sync()` of
`DistributedDataParallel` does. Where a step turns out to have fewer backward passes, such as the last one of an epoch,
gradients are averaged over all processes before they are clipped or used.

## When it helps
If the script accumulates gradients over several micro-batches and exchanges them in each, which only the last needs.

## What it costs
Nothing, if the number of micro-batches per step stays the same. Buffers, such as the statistics of batch norm, are
copied from the first process to the others once per step.

## Before
    for inputs, targets in micro_batches:
        criterion(model(inputs), targets).backward()
    optimizer.step()

## After
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        with contextlib.nullcontext() if number == len(micro_batches) else model.no_sync():
            criterion(model(inputs), targets).backward()
    optimizer.step()

## What is proved
`rounding`: gradients are added up in another order. The losses of every process are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter
from hotlap.levers.support.data_parallel import bound_of_exchange, without_exchange, wrappers
from hotlap.levers.support.situations import make_setting
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Exchange gradients once per optimizer step, not for each micro-batch"
proof: Proof = "rounding"
addresses = ("exposed-communication",)
parameters = {"micro_batches": Parameter(int, minimum=2)}

_NEARLY_WHOLE = 0.05
"""A short last step of an epoch moves the mean number of backward passes a little off the usual number."""


def obstacle(situation: Situation) -> Skipped | None:
    """Require one optimizer, several backward passes per step, and an exchange in each of them."""
    facts = situation.facts
    if without_exchange(situation):
        return without_exchange(situation)
    if any(it.unsynchronised_backwards for it in wrappers(situation)):
        return Skipped(reason="The script already skips the exchange while it accumulates gradients.", already=True)
    if round(facts.backwards_per_step) < 2:
        return Skipped(reason="Each optimizer step has one backward pass.")
    if not candidates(situation):
        return Skipped(reason="The number of backward passes per optimizer step changes.")
    if len(facts.optimizers) != 1 or len(wrappers(situation)) != 1:
        return Skipped(reason="Several models or optimizers train, whose steps need gradients at different times.")
    if facts.grad_scaler:
        return Skipped(reason="A GradScaler inspects gradients, which must be the same in every process by then.")
    if any(it.static_graph or it.communication_hook for it in wrappers(situation)):
        return Skipped(reason="A static graph or a communication hook counts the backward passes that exchange.")
    return None


def bound(situation: Situation) -> float | None:
    """The exchange is part of the backward pass."""
    return bound_of_exchange(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """As many micro-batches as the script accumulates."""
    found = situation.facts.backwards_per_step
    if round(found) < 2 or abs(found - round(found)) > _NEARLY_WHOLE * found:
        return ()
    return (make_setting("no-sync", micro_batches=round(found)),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: forward and backward have to move into one region."""
    reason = "Forward and backward have to move into one `with model.no_sync()`; `hotlap rule HL703` shows it."
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Turn the exchange off before each forward pass but the last of a step."""
    exchange = _Exchange(hooks, int(dict(setting.values)["micro_batches"]))
    hooks.after_data_parallel.append(exchange.made)
    hooks.before_forward.append(exchange.before_forward)
    hooks.after_backward.append(exchange.after_backward)
    hooks.before_clip.append(lambda parameters, limit: exchange.complete())
    hooks.before_update.append(lambda optimizer: exchange.complete())
    hooks.after_update.append(lambda optimizer: exchange.begin_step())


class _Exchange:
    """The backward passes of the present step, and whether their gradients are still those of this process alone."""

    def __init__(self, hooks: Hooks, micro_batches: int) -> None:
        self._hooks = hooks
        self._micro_batches = micro_batches
        self._wrappers: list[Any] = []
        self._backwards = 0
        self._is_local = False

    def made(self, wrapper: Any) -> None:
        self._wrappers.append(wrapper)

    def before_forward(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """``require_backward_grad_sync`` is what ``no_sync`` sets, and what the forward pass reads."""
        for wrapper in self._wrappers:
            wrapper.require_backward_grad_sync = self._backwards + 1 >= self._micro_batches
        return args, kwargs

    def after_backward(self) -> None:
        self._backwards += 1
        self._is_local = any(not it.require_backward_grad_sync for it in self._wrappers)

    def begin_step(self) -> None:
        self._backwards = 0
        self._is_local = False

    def complete(self) -> None:
        """Average gradients over all processes, where the step has fewer backward passes than usual."""
        if not self._is_local:
            return
        self._is_local = False
        self._hooks.note("A step had fewer micro-batches than usual; its gradients were averaged before the update.")
        for wrapper in self._wrappers:
            group = wrapper.process_group
            for weight in wrapper.parameters():
                if weight.grad is not None:
                    weight.grad.div_(group.size())
                    self._hooks.torch.distributed.all_reduce(weight.grad, group=group)
