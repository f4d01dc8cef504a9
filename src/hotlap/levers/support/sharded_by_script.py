"""What levers for models that the script itself shares have in common. Not a lever."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hotlap.records import ShardedFacts, Situation, Skipped

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks


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
