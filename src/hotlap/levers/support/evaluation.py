"""Distinguish a loader that is read for training from one that is read for evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks


def evaluation_watch(hooks: Hooks) -> Callable[[], bool]:
    """What says whether a loader that is read now is read for an evaluation: gradients are off, or all models are in
    evaluation mode. Where a model is trained in that mode, the mode says nothing."""
    models: WeakSet[Any] = WeakSet()
    mode_decides = True

    def found(root: Any) -> None:
        nonlocal mode_decides
        models.add(root)
        mode_decides = mode_decides and root.training

    def evaluates() -> bool:
        if not hooks.torch.is_grad_enabled():
            return True
        return mode_decides and len(models) > 0 and not any(it.training for it in models)

    hooks.model_found.append(found)
    return evaluates
