"""How much gradients of different batches differ at the same weights.

In each group all steps but the last leave out the update, so that the gradients of a group belong to the same weights.
Norms are compared within a group only, so that a constant factor of a loss scaler does not matter. Where gradients are
clipped, they are read before that.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from hotlap.records import GradientGroup, MeasureGradientNoise
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: MeasureGradientNoise) -> None:
    """From the first step on."""
    noise = _Noise(place, asked)
    place.hooks.after_optimizer.append(noise.optimizer_made)
    place.hooks.before_clip.append(noise.before_clip)
    place.hooks.around_step.append(noise.around_step)
    place.hooks.before_exit.append(noise.finish)


class _Noise:
    def __init__(self, place: Place, asked: MeasureGradientNoise) -> None:
        self._place = place
        self._torch = place.hooks.torch
        self._asked = asked
        self._optimizers = 0
        self._given_up = False
        self._read_at_clip = False
        self._squares: list[float] = []
        self._sums: dict[int, Any] = {}
        self._groups: list[tuple[float, float]] = []

    def optimizer_made(self, optimizer: Any) -> None:
        self._optimizers += 1
        if self._optimizers > 1:
            self._give_up("the script has several optimizers")

    def before_clip(self, parameters: Any, limit: float) -> None:
        if self._is_over() or self._read_at_clip:
            return
        given = [parameters] if isinstance(parameters, self._torch.Tensor) else list(parameters)
        self._read_at_clip = True
        self._read(given)

    def around_step(self, optimizer: Any, step: Fetch) -> Any:
        if self._is_over():
            return step()
        if not self._read_at_clip:
            self._read([it for group in optimizer.param_groups for it in group["params"]])
        self._read_at_clip = False
        if self._is_over():
            return step()
        if len(self._squares) < self._asked.gradients:
            for tell in self._place.hooks.update_skipped:
                tell(optimizer)
            return None
        self._close_group()
        return step()

    def _is_over(self) -> bool:
        return self._given_up or len(self._groups) >= self._asked.groups

    def _give_up(self, reason: str) -> None:
        if not self._given_up:
            self._place.hooks.note(f"The noise of gradients was not measured: {reason}.")
        self._given_up = True
        self._sums.clear()

    def _read(self, parameters: Iterable[Any]) -> None:
        """Add one gradient to the group."""
        gradients = {id(it): it.grad.detach() for it in parameters if it.grad is not None}
        if not gradients:
            self._give_up("no gradient was there before the optimizer's step")
        elif any(it.is_sparse for it in gradients.values()):
            self._give_up("gradients are sparse")
        else:
            square = sum(map(self._square, gradients.values()))
            self._squares.append(square)
            for key, gradient in gradients.items():
                if key in self._sums:
                    self._sums[key] += gradient
                else:
                    self._sums[key] = gradient.to(self._torch.float32, copy=True)

    def _square(self, gradient: Any) -> float:
        return float(self._torch.linalg.vector_norm(gradient, dtype=self._torch.float32)) ** 2

    def _close_group(self) -> None:
        count = len(self._squares)
        mean = sum(self._squares) / count
        self._groups.append((mean, sum(map(self._square, self._sums.values())) / count**2))
        self._squares = []
        self._sums = {}

    def finish(self) -> None:
        """Report the groups; the samples of a step are known only now."""
        steps = self._place.clock.steps().samples
        if self._given_up or not steps:
            return
        samples = float(median(steps))
        self._place.hooks.found["gradient_groups"] = tuple(
            GradientGroup(gradients=self._asked.gradients, samples=samples, mean_square=square, square_of_mean=of_mean)
            for square, of_mean in self._groups
        )
