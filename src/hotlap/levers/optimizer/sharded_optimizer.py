"""Keep each part of the optimizer's state on one process only (ZeRO-1).

## What it does
Each process updates only its share of the weights and keeps the optimizer's state of these alone; then every process
gets the new weights from the one that updated them, in buckets of 25 MB. This is the first stage of ZeRO, as torch's
`ZeroRedundancyOptimizer`. The optimizer stays the script's own object: schedulers, scalers, clipping and logging use it
as before. `state_dict()` returns the whole state on whichever process calls it, also on the first one alone: a thread
of each process answers for its share. A checkpoint has the same form as without the lever, and loads with and without
it.

## When it helps
When the optimizer's state takes much of the memory: AdamW keeps two numbers per weight, of which each of N processes
then holds one Nth. The step gets faster too if updating all weights takes longer than updating a share and sending it.

## What it costs
All weights are sent once per step, after the update, where nothing overlaps with it. `state_dict()` of the other
processes' shares passes through the host's memory, and arrives there. A process that has finished waits for the others
to finish, because they may still save. A script that reads `optimizer.state` itself finds only this process's share.

## Before
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

## After
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    ...
    optimizer.consolidate_state_dict()  # on all processes, before the first one saves

## What is proved
`exact`: each weight gets the same update from the same gradient, on one process instead of on all. The losses of every
process must agree to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.support.data_parallel import share_of_others, too_little_saved, without_exchange, wrappers
from hotlap.levers.support.independent_updates import KINDS
from hotlap.levers.support.situations import device_kind, make_setting
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    NoSourceForm,
    OptimizerFacts,
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

title = "Keep each part of the optimizer's state on one process only (ZeRO-1)"
proof: Proof = "exact"
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("close-to-limit", "allocator-retries", "unfused-optimizer")
parameters: dict[str, Parameter] = {}

_DEVICES = ("cpu", "cuda")
_LEAST_GAIN = 1.01
"""Where steps can gain less, it has to be worth it for memory."""


def obstacle(situation: Situation) -> Skipped | None:
    """Require state to share, of an optimizer that updates each weight independently."""
    facts = situation.facts
    if without_exchange(situation):
        return without_exchange(situation)
    if not facts.optimizers:
        return Skipped(reason="The script uses no optimizer of torch.")
    if any(it.processes < facts.processes for it in wrappers(situation)):
        return Skipped(reason="A DistributedDataParallel spans only some of the processes.")
    if device_kind(situation) not in _DEVICES:
        return Skipped(reason=f"Sharing state is not supported on {device_kind(situation)}.")
    if not any(map(_updates_independently, facts.optimizers)):
        return Skipped(reason=f"{facts.optimizers[0].kind} may not update each weight independently.")
    if all(it.state_bytes == 0 for it in facts.optimizers):
        return Skipped(reason=f"{facts.optimizers[0].kind} keeps no state for the weights, so there is none to share.")
    found = bound(situation)
    if found is None or found >= _LEAST_GAIN or any(it.state_bytes is None for it in facts.optimizers):
        return None
    return too_little_saved(situation, share_of_others(situation, sum(it.state_bytes or 0 for it in facts.optimizers)))


def bound(situation: Situation) -> float | None:
    """Each process updates one Nth of the weights; that the new weights must be sent is left out."""
    account, processes = situation.account, situation.facts.processes
    rest = account.wall - account.seconds_in("optimizer") * (1 - 1 / max(1, processes))
    return account.wall / rest if account.wall > 0 and rest > 0 else None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There is nothing to choose."""
    return (make_setting("sharded-optimizer"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: torch's own class has to be called by all processes before one of them saves."""
    reason = "With ZeroRedundancyOptimizer the script must call consolidate_state_dict() on all processes to save."
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Share each optimizer of wrapped weights from its first step on."""
    from hotlap.levers.support.sharded_steps import share_optimizers

    share_optimizers(hooks)


def _updates_independently(optimizer: OptimizerFacts) -> bool:
    return optimizer.from_torch and optimizer.kind in KINDS
