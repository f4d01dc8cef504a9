"""The held-out loss: the mean of what torch's loss functions return in an evaluation of the script.

A loss counts if it is computed without gradients, and after a forward pass of the model without gradients. The
evaluation is over when the model trains again, or when the process ends.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from hotlap.records import HeldOutLoss, WatchEvaluation
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.instruments.api import Place

_LOSSES = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
)
_MOST_EVALUATIONS = 1000


def install(place: Place, asked: WatchEvaluation) -> None:
    """Wrap the loss functions before the script can import one by name."""
    watch = _Watch(place)
    functional = place.hooks.torch.nn.functional
    for name in _LOSSES:
        place.interception.patches.replace(functional, name, watch.wrapped(getattr(functional, name)))
    place.hooks.around_evaluation.append(watch.evaluation)
    place.hooks.before_forward.append(watch.training_forward)
    place.hooks.before_exit.append(watch.finish)


class _Watch:
    """The evaluation that is running, if any, and those before it."""

    def __init__(self, place: Place) -> None:
        self._torch = place.hooks.torch
        self._place = place
        self._running = False
        self._within = False
        self._total = 0.0
        self._samples = 0
        self._found: list[tuple[int, float, int]] = []
        self._steps = 0
        place.hooks.step_ended.append(self._step_ended)

    def _step_ended(self) -> None:
        self._steps += 1

    def evaluation(self, root: Any, call: Fetch) -> Any:
        self._running = True
        return call()

    def training_forward(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._close()
        return args, kwargs

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def loss(*args: Any, **kwargs: Any) -> Any:
            if not self._running or self._within or self._torch.is_grad_enabled():
                return function(*args, **kwargs)
            self._within = True  # a loss function may call another one
            try:
                value = function(*args, **kwargs)
            finally:
                self._within = False
            self._note(value, args[0] if args else kwargs.get("input"), kwargs.get("reduction", "mean"))
            return value

        return loss

    def _note(self, value: Any, inputs: Any, reduction: str) -> None:
        tensor = self._torch.Tensor
        if not isinstance(value, tensor) or not isinstance(inputs, tensor) or not inputs.dim() or not value.numel():
            return
        samples = int(inputs.shape[0])
        mean = float(value.detach().double().mean())
        self._total += mean if reduction == "sum" else mean * samples
        self._samples += samples

    def _close(self) -> None:
        if self._running and self._samples and len(self._found) < _MOST_EVALUATIONS:
            self._found.append((self._steps, self._total / self._samples, self._samples))
        self._running, self._total, self._samples = False, 0.0, 0

    def finish(self) -> None:
        """Report the evaluations; the last one may have ended with the script."""
        self._close()
        trained = [0]
        for samples in self._place.clock.steps().samples:
            trained.append(trained[-1] + samples)
        self._place.hooks.found["evaluations"] = tuple(
            HeldOutLoss(step=step, trained=trained[min(step, len(trained) - 1)], loss=loss, samples=samples)
            for step, loss, samples in self._found
            if math.isfinite(loss)
        )
