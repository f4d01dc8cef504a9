"""The number of threads that torch uses on the CPU.

## What it does
Calls `torch.set_num_threads` right after torch's import.

## When it helps
With small tensors, synchronizing threads costs more than it gains, so one thread can be faster than many. If a
container sees more cores than it may use, or other processes use the same cores, too many threads wait for each other,
and fewer are faster. If a launcher or an environment variable allows only one thread, more may be faster.

## What it costs
Nothing. The best number on an idle machine may be wrong on a busy one.

## Before
    model = Net()

## After
    torch.set_num_threads(4)
    model = Net()

## What is proved
`rounding`: sums are split among threads, and another split rounds in another order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.situations import bound_of_computing, cores_per_process, device_kind, make_setting
from hotlap.levers.support.switching import Switch, remembered
from hotlap.records import Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange, TopStatement

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "The number of threads on the CPU"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("training", "inference")
addresses = ("oversubscribed", "crowded-cores")
parameters = {"threads": Parameter(int, minimum=1, maximum=1024)}


def obstacle(situation: Situation) -> Skipped | None:
    """Require CPU training, and another number than the present one to try."""
    if device_kind(situation) != "cpu":
        return Skipped(reason="The model computes on an accelerator, so the CPU's threads matter little.")
    if not candidates(situation):
        return Skipped(reason="One core is available and one thread is used.", already=True)
    return None


def bound(situation: Situation) -> float | None:
    """All computation of torch may get faster, but not waiting for workers."""
    return bound_of_computing(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """All physical cores, one thread, and all cores, without the present number."""
    cores = cores_per_process(situation)
    physical = min(cores, max(1, situation.machine.physical_cores // max(1, situation.facts.processes)))
    counts = [count for count in dict.fromkeys((physical, 1, cores)) if count != situation.facts.threads]
    return tuple(make_setting("cpu-threads", threads=count) for count in counts)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The call, below the imports."""
    threads = dict(setting.values)["threads"]
    return (TopStatement(code=f"torch.set_num_threads({threads})", needs=("torch.set_num_threads",)),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Set it immediately; a script that sets it later takes precedence."""
    hooks.torch.set_num_threads(dict(setting.values)["threads"])


def switch(hooks: Hooks, setting: Setting) -> Switch:
    """The number of threads; surplus threads wait if fewer are set."""
    torch = hooks.torch
    return remembered(torch.get_num_threads, torch.set_num_threads, dict(setting.values)["threads"])
