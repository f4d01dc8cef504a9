"""How many steps a GradScaler skipped because gradients overflowed, without waiting for a device."""

from __future__ import annotations

from typing import Any

from hotlap.runtime.watch.peek import Peek


class SkippedSteps:
    """Counts the updates of all scalers of a script, and those with an overflow.

    On a CPU the scaler's own flags are read. On a device they are added up there, and the sum is read once it has
    arrived.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._on_device: Any = None
        self._peek = Peek(torch)
        self._updates = self._skipped = 0
        self._reported_updates = self._reported_skipped = 0

    @property
    def has_news(self) -> bool:
        """Whether a scaler was updated since the last call of :meth:`take`: that of a step comes after its end."""
        return self._updates > self._reported_updates

    def before_update(self, scaler: Any) -> None:
        """Look at the flags of this step; the scaler forgets them when it updates its scale."""
        # Private in torch 2.6 to 2.13. The public `get_scale`, from which a skip follows, waits for the device.
        states = getattr(scaler, "_per_optimizer_states", {})
        flags = [flag for it in states.values() for flag in it.get("found_inf_per_device", {}).values()]
        if not flags:
            return
        self._updates += 1
        if all(it.is_cpu for it in flags):
            self._skipped += any(float(it) for it in flags)
        else:
            self._count_on_device(flags)

    def _count_on_device(self, flags: list[Any]) -> None:
        with self._torch.no_grad():
            combined = flags[0]
            for it in flags[1:]:
                combined = self._torch.maximum(combined, it.to(combined.device, non_blocking=True))
            if self._on_device is None:
                self._on_device = self._torch.zeros_like(combined, dtype=self._torch.float64)
            self._on_device.add_(combined.to(self._on_device.device, non_blocking=True))
            self._peek.look(self._on_device)

    def take(self) -> tuple[int, int]:
        """The updates, and those of them that are known to have been skipped, since the last call."""
        arrived = self._peek.value() if self._on_device is not None else None
        skipped = self._skipped + round(arrived or 0.0)
        found = self._updates - self._reported_updates, skipped - self._reported_skipped
        self._reported_updates, self._reported_skipped = self._updates, skipped
        return found
