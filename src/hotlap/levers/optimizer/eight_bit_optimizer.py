"""Keep the optimizer's state in 8 bits, by torchao.

## What it does
Stores the moments of Adam, AdamW, RMSprop and SGD with momentum as 8-bit codes with a scale for each block of 256
values (torchao's `OptimState8bit`; Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"). In each step
the script's own optimizer updates one weight after another: the state of that weight is decoded, used and encoded
again. Tensors of less than 4096 values, and those that 256 does not divide, keep their state as it is.

## When it helps
When optimizer state fills the memory: with Adam it takes 8 bytes for each float32 weight of 4, and 2 with this lever.
It is tried when the goal is memory (`hotlap tune --goal memory --allow eight-bit-optimizer`) and torchao is installed.

## What it costs
Decoding and encoding in each step, and one call of the optimizer per weight. The state is less precise, which changes
what is learned. A checkpoint of the optimizer holds torchao's tensors, and needs torchao to be loaded. It cannot be
combined with closures, several optimizers or several processes.

## Before
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

## After
    optimizer = torchao.optim.AdamW8bit(model.parameters(), lr=1e-3)

## What is proved
`behaviour`: over paired seeds the loss must change by less than another seed changes it.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from hotlap.levers.support.situations import make_setting
from hotlap.records import PEAK_BYTES, NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Fetch, Hooks

title = "Keep the optimizer's state in 8 bits, by torchao"
proof: Proof = "behaviour"
improves = (PEAK_BYTES,)
addresses = ("close-to-limit", "allocator-retries")
parameters: dict[str, Parameter] = {}

KINDS = ("Adam", "AdamW", "RMSprop", "SGD")
PACKAGE = "torchao"
_NEVER_NEGATIVE = frozenset({"exp_avg_sq", "max_exp_avg_sq", "square_avg"})
_BLOCK = 256
_FEWEST = 4096


def obstacle(situation: Situation) -> Skipped | None:
    """Require torchao, and one optimizer of torch whose state can be encoded."""
    facts = situation.facts
    if len(facts.optimizers) != 1:
        return Skipped(reason="The script does not use exactly one optimizer of torch.")
    (optimizer,) = facts.optimizers
    if optimizer.kind not in KINDS or not optimizer.from_torch:
        return Skipped(reason=f"{optimizer.kind} is not among the optimizers whose state can be encoded.")
    if facts.processes > 1:
        return Skipped(reason="Several processes train, and their optimizers may share their state.")
    if PACKAGE not in facts.packages:
        return Skipped(reason=f"The package {PACKAGE} is not installed: pip install {PACKAGE}.")
    return None


def bound(situation: Situation) -> float | None:
    """It makes no step faster."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There is nothing to choose."""
    return (make_setting("eight-bit-optimizer"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: torchao's own optimizers take other arguments, and learning rates as tensors."""
    reason = "torchao's own 8-bit optimizers take other arguments, and keep their learning rates in tensors."
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Take over each step of the first optimizer; a second one, or a closure, ends that."""
    eight_bit = _EightBit(hooks)
    hooks.after_optimizer.append(eight_bit.made)
    hooks.around_step.append(eight_bit.around_step)


class _EightBit:
    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._optimizers = 0
        self._refused = False

    def made(self, optimizer: Any) -> None:
        self._optimizers += 1
        kind = type(optimizer)
        if self._optimizers > 1:
            self._refuse("the script has several optimizers")
        elif kind.__name__ not in KINDS or not kind.__module__.startswith("torch.optim"):
            self._refuse(f"the state of {kind.__name__} cannot be encoded")

    def around_step(self, optimizer: Any, step: Fetch) -> Any:
        weights = [(group, it) for group in optimizer.param_groups for it in group["params"] if it.grad is not None]
        if not weights:
            self._refuse("no gradient was there before the optimizer's step")
        if self._refused:
            return step()
        gradients = [it.grad for _, it in weights]
        update, groups = inspect.unwrap(type(optimizer).step), optimizer.param_groups
        try:
            for group, weight in weights:
                optimizer.param_groups = [{**group, "params": [weight]}]
                self._decode(optimizer.state[weight])
                with self._hooks.torch.no_grad():
                    update(optimizer)
                self._encode(optimizer.state[weight])
                weight.grad = None
        finally:
            optimizer.param_groups = groups
        result = step()  # nothing is left to apply, but the step counts
        for (_, weight), gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        return result

    def _refuse(self, reason: str) -> None:
        if not self._refused:
            self._hooks.note(f"The optimizer's state is not encoded: {reason}.")
        self._refused = True

    def _decode(self, state: dict[str, Any]) -> None:
        from torchao.optim.subclass_8bit import OptimState8bit

        for name, value in state.items():
            if isinstance(value, OptimState8bit):
                state[name] = value.dequantize()

    def _encode(self, state: dict[str, Any]) -> None:
        from torchao.optim.subclass_8bit import OptimState8bit

        for name, value in state.items():
            if not isinstance(value, self._hooks.torch.Tensor) or not value.is_floating_point():
                continue
            if value.numel() >= _FEWEST and value.numel() % _BLOCK == 0:
                encoded = OptimState8bit.zeros(value.shape, name not in _NEVER_NEGATIVE, _BLOCK, value.device)
                encoded.copy_(value)
                state[name] = encoded
