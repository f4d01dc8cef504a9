"""How much of the batches is padding, by the ``attention_mask`` that models get."""

from __future__ import annotations

from typing import Any

from hotlap.evidence import PaddedForwards
from hotlap.runtime.interception import Interception
from hotlap.runtime.unit_clock import UnitClock

_MASK = "attention_mask"


class PaddingWatch:
    """Counts the positions of each training forward with a mask of a row for each sequence.

    What is used is added up on the mask's own device, and read at the end: no step waits for it.
    """

    def __init__(self, interception: Interception, clock: UnitClock) -> None:
        self._torch = interception.hooks.torch
        self._counting = False
        self._forwards = self._positions = 0
        self._used: dict[str, Any] = {}
        interception.hooks.before_forward.append(self._forward_begins)

    def pause(self) -> None:
        """Count nothing from now on."""
        self._counting = False

    def resume(self) -> None:
        """Count what comes from now on."""
        self._counting = True

    def result(self) -> dict[str, object]:
        """The positions of the observed steps."""
        used = sum(int(it.item()) for it in self._used.values())
        return {"padding": PaddedForwards(forwards=self._forwards, positions=self._positions, used=used)}

    def _forward_begins(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        mask: Any = kwargs.get(_MASK)
        if self._counting and root.training and self._is_countable(mask):
            with self._torch.no_grad():
                used, device = mask.ne(0).sum(), str(mask.device)
                self._used[device] = self._used[device] + used if device in self._used else used
            self._forwards += 1
            self._positions += mask.numel()
        return args, kwargs

    def _is_countable(self, mask: Any) -> bool:
        """A row for each sequence, of zeros and ones; not one that is added to scores, nor one for pairs of tokens."""
        if not isinstance(mask, self._torch.Tensor) or mask.dim() != 2:
            return False
        return not (mask.is_floating_point() or mask.is_complex() or mask.is_meta)
