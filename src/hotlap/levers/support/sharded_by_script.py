"""What levers for models that the script itself shares have in common. Not a lever."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hotlap.records import ShardedFacts, Situation, Skipped

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

_GIBIBYTE = 2**30
_KEPT_FREE = 0.1


def sharded(situation: Situation) -> tuple[ShardedFacts, ...]:
    """The models that several processes share."""
    return tuple(it for it in situation.facts.sharded if it.processes > 1)


def without_sharding(situation: Situation) -> Skipped | None:
    """The obstacle of every lever of this kind."""
    if situation.facts.processes < 2:
        return Skipped(reason="One process trains: its weights are all its own.")
    if not sharded(situation):
        return Skipped(reason="The script does not share weights between processes (FSDP).")
    return None


def missing_of_others(situation: Situation) -> int:
    """What each process would hold besides if it held all of the model: the others' shares of weights, gradients and
    optimizer state."""
    facts = situation.facts
    processes = max(1, facts.processes)
    weights = sum(it.parameter_bytes for it in facts.models)
    state = sum(it.state_bytes or 0 for it in facts.optimizers) * (processes - 1)
    return 2 * (weights - weights // processes) + state


def without_room(situation: Situation, missing_bytes: int) -> Skipped | None:
    """The obstacle of a lever that makes each process hold so many bytes more; None where the memory is unknown."""
    facts, machine = situation.facts, situation.machine
    processes = max(1, facts.processes)
    if situation.device_peak_bytes:
        peak, room = situation.device_peak_bytes, min((it.memory_bytes for it in machine.accelerators), default=0)
    else:
        peak, room = situation.host_peak_bytes // processes, machine.memory_bytes // processes
    if not room or peak + missing_bytes <= (1 - _KEPT_FREE) * room:
        return None
    return Skipped(
        reason=f"The whole model does not fit: a process would hold {(peak + missing_bytes) / _GIBIBYTE:.1f} GiB of "
        f"{room / _GIBIBYTE:.1f} GiB."
    )


def on_units(hooks: Hooks, change: Callable[[list[Any], str], None]) -> None:
    """Change the units of each model, the outermost first, before its first training forward; with the name of their
    interface."""

    def found(root: Any) -> None:
        from torch.distributed import fsdp

        modules = list(root.modules())
        first = [it for it in modules if isinstance(it, fsdp.FullyShardedDataParallel)]
        second = [it for it in modules if isinstance(it, getattr(fsdp, "FSDPModule", ()))]
        if first or second:
            change(first or second, "fsdp1" if first else "fsdp2")

    hooks.model_found.append(found)
