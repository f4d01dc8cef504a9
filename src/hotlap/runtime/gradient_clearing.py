"""How the script clears its gradients: filled with zeros or dropped, and after which forward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hotlap.levers.support.used_gradients import UsedGradients
from hotlap.runtime.hooks import Fetch, Hooks

LOOKS = 20
"""How many forward passes are looked at."""


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


class UsedGradientsWatch:
    """How many bytes of gradients of the last update are held when a forward pass begins, in the first ones."""

    def __init__(self, hooks: Hooks) -> None:
        self._used = UsedGradients()
        self._most = 0
        self._looks = 0
        hooks.after_update.append(self._used.updated)
        hooks.before_backward.append(self._used.backward_begins)
        hooks.before_forward.append(self._before_forward)
        hooks.around_evaluation.append(self._around_evaluation)

    @property
    def keeps(self) -> bool:
        """Whether gradients of an update were still held when a backward pass began."""
        return self._used.needed

    def held_bytes(self) -> int:
        """The most that was held of what the script then cleared."""
        return 0 if self._used.needed else self._most

    def _before_forward(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._look()
        return args, kwargs

    def _around_evaluation(self, root: Any, evaluate: Fetch) -> Any:
        self._look()
        return evaluate()

    def _look(self) -> None:
        if self._looks < LOOKS:
            self._looks += 1
            self._most = max(self._most, self._used.held_bytes())
