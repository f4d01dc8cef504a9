"""Start some steps from what another run's same steps started from, and compare what they change.

Between these steps the script trains on from where each of them ended.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from hotlap.records import KEPT_STEPS, RestoredStep, RestoreSteps
from hotlap.runtime.instruments.api import Place
from hotlap.runtime.instruments.keep_steps import CHANGE, STATE
from hotlap.runtime.training_state import UNREADABLE, OtherState, TrainingState

_COUNTS = 1e-4
"""A tensor counts by itself whose change has this share of the length of the whole; of others it may be rounding."""


def install(place: Place, asked: RestoreSteps) -> None:
    """At the end of the step before, and at its own end."""
    restorer = _Restorer(place, Path(os.environ[KEPT_STEPS]))
    place.hooks.after_optimizer.append(restorer.state.optimizers.append)
    place.hooks.step_ended.append(restorer.step_ended)


class _Restorer:
    def __init__(self, place: Place, folder: Path) -> None:
        self.state = TrainingState(place.hooks.torch, place.interception.roots.all)
        self._place = place
        self._folder = folder
        self._steps = {int(it.name.partition("-")[0]) for it in folder.glob(f"*-{CHANGE}")}
        self._running: tuple[int, list[Any]] | None = None
        self._found: list[RestoredStep] = []

    def step_ended(self) -> None:
        done = self._place.clock.steps_done
        try:
            if self._running is not None:
                self._found.append(self._compared(*self._running))
                self._place.hooks.found["restored_steps"] = tuple(self._found)
                self._running = None
            if done in self._steps:
                self.state.load(self._folder / f"{done}-{STATE}")
                self._running = done, self.state.sampled_weights()
        except (OtherState, *UNREADABLE) as error:
            self._place.hooks.note(f"Single steps could not be started from where others did: {error}.")
            self._steps, self._running = set(), None

    def _compared(self, step: int, before: list[Any]) -> RestoredStep:
        """What this step changed, next to what the same step of the other run did."""
        import numpy

        shares, after, tensor = self.state.shares(), self.state.sampled_weights(), self._place.hooks.torch.from_numpy
        squares, own_squares, squared_errors = ([0.0] * len(shares) for _ in range(3))
        path = self._folder / f"{step}-{CHANGE}"
        with path.open("rb") as file, numpy.load(file, allow_pickle=False) as rows:
            for row, share in enumerate(shares):
                if f"gradient {row}" not in rows:  # the loss does not depend on it
                    continue
                gradient, theirs = tensor(rows[f"gradient {row}"]), tensor(rows[f"{row}"])
                ours = after[row] - before[row]
                squares[row] = share * float(((gradient * theirs) ** 2).sum())
                own_squares[row] = share * float(((gradient * ours) ** 2).sum())
                squared_errors[row] = share * float(((gradient * (ours - theirs)) ** 2).sum())
        whole, own = math.fsum(squares), math.fsum(own_squares)
        if not (whole and math.isfinite(own)):
            return RestoredStep(step=step)
        return RestoredStep(
            step=step,
            error=math.sqrt(math.fsum(squared_errors) / whole),
            length_ratio=math.sqrt(own / whole),
            tensor_errors=tuple(
                math.sqrt(error / size) if size > _COUNTS**2 * whole else None
                for error, size in zip(squared_errors, squares, strict=True)
            ),
        )
