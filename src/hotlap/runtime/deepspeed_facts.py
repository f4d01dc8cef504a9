"""Which engines of DeepSpeed the script makes, and with which stage of ZeRO."""

from __future__ import annotations

from typing import Any

from hotlap.records import DeepSpeedFacts
from hotlap.runtime.hooks import Hooks


class DeepSpeedWatch:
    """Notes the facts of every engine when it is made."""

    def __init__(self, hooks: Hooks) -> None:
        self._torch = hooks.torch
        self._made: list[DeepSpeedFacts] = []
        hooks.after_deepspeed.append(self._note)

    def _note(self, engine: Any) -> None:
        """By the engine's documented methods; an engine without them (another version) is not described."""
        if not hasattr(engine, "zero_optimization_stage"):
            return
        self._made.append(
            DeepSpeedFacts(
                stage=int(engine.zero_optimization_stage()),
                processes=self._torch.distributed.get_world_size() if self._torch.distributed.is_initialized() else 1,
                offloads=any(_offloads(engine, it) for it in ("zero_offload_optimizer", "zero_offload_param")),
                pipeline=type(engine).__name__ == "PipelineEngine",
            )
        )

    def facts(self) -> tuple[DeepSpeedFacts, ...]:
        """What was observed."""
        return tuple(self._made)


def _offloads(engine: Any, name: str) -> bool:
    found = getattr(engine, name, lambda: None)()
    device = getattr(found, "device", None)
    return device is not None and str(getattr(device, "value", device)) != "none"
