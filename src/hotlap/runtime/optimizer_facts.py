"""What an optimizer of the script is, and what it keeps."""

from __future__ import annotations

from typing import Any

from hotlap.records import CallSite, OptimizerFacts
from hotlap.runtime.devices import local_part


def optimizer_facts(optimizer: Any, site: CallSite | None, requested: dict[str, Any]) -> OptimizerFacts:
    """The facts; ``requested`` are the arguments that the script gave."""
    groups = optimizer.param_groups
    names = optimizer.defaults
    return OptimizerFacts(
        kind=type(optimizer).__name__,
        parameters=sum(it.numel() for group in groups for it in group["params"]),
        learning_rate=float(groups[0]["lr"]) if groups and "lr" in groups[0] else 0.0,
        fused=requested.get("fused"),
        foreach=requested.get("foreach"),
        supports_fused="fused" in names,
        supports_foreach="foreach" in names,
        from_torch=type(optimizer).__module__.startswith("torch.optim"),
        state_bytes=_state_bytes(optimizer),
        site=site,
    )


def _state_bytes(optimizer: Any) -> int:
    """The bytes of what is kept for a weight in its own shape, in this process; counts of steps are left out."""
    return sum(
        local_part(it).numel() * it.element_size()
        for weight, kept in optimizer.state.items()
        if isinstance(kept, dict)
        for it in kept.values()
        if hasattr(it, "element_size") and it.dim() and it.shape == getattr(weight, "shape", None)
    )
