"""Whether the script fills its gradients with zeros between steps instead of dropping them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class ClearingWatch:
    """Watches torch's own ``zero_grad`` of optimizers and modules."""

    def __init__(self, torch: Any, replace: Callable[[Any, str, Any], None]) -> None:
        self.fills_with_zeros = False
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            replace(owner, "zero_grad", self._watched(owner.zero_grad))

    def _watched(self, zero_grad: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(zero_grad)
        def clear(owner: Any, set_to_none: bool = True) -> None:
            if not set_to_none:
                self.fills_with_zeros = True
            zero_grad(owner, set_to_none)

        return clear
