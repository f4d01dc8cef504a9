"""Keep what some steps start from, and what they change: other runs start the same steps from there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hotlap.records import FEWEST_KEPT_STEPS, KEPT_STEPS, KeepSteps
from hotlap.runtime.instruments.api import Place
from hotlap.runtime.training_state import OtherState, TrainingState

STATE, CHANGE = "state.npz", "change.npz"


def install(place: Place, asked: KeepSteps) -> None:
    """At the end of the step before, and at its own end."""
    folder = Path(os.environ[KEPT_STEPS])
    _clear(folder)
    keeper = _Keeper(place, asked, folder)
    place.hooks.after_optimizer.append(keeper.state.optimizers.append)
    place.hooks.before_update.append(keeper.before_update)
    place.hooks.step_ended.append(keeper.step_ended)


class _Keeper:
    def __init__(self, place: Place, asked: KeepSteps, folder: Path) -> None:
        self.state = TrainingState(place.hooks.torch, place.interception.roots.all)
        self._place = place
        self._most_bytes = asked.most_bytes
        self._wanted: tuple[int, ...] | None = None
        self._asked = asked.steps
        self._folder = folder
        self._running: tuple[int, list[Any]] | None = None
        self._gradients: dict[int, Any] = {}
        self._kept: list[int] = []

    def before_update(self, optimizer: Any) -> None:
        if self._running is not None:
            try:
                self._gradients |= self.state.sampled_gradients(optimizer)
            except OtherState as error:
                self._give_up(f"What single steps start from was not kept: {error}.")

    def step_ended(self) -> None:
        done = self._place.clock.steps_done
        try:
            if self._running is not None:
                self._keep_change(*self._running)
                self._kept.append(self._running[0])
                self._place.hooks.found["kept_steps"] = tuple(self._kept)
                self._running = None
            if self._wanted is None and self.state.optimizers:
                self._wanted = self._affordable()
            if done in (self._wanted or ()):
                self.state.save(self._file(done, STATE))
                self._running = done, self.state.sampled_weights()
        except (OSError, OtherState) as error:
            self._give_up(f"What single steps start from was not kept: {error}.")

    def _affordable(self) -> tuple[int, ...]:
        """As many of the steps, evenly spaced, as there may be bytes."""
        size = self.state.size_in_bytes
        count = min(len(self._asked), self._most_bytes // max(1, size))
        if count < FEWEST_KEPT_STEPS:
            self._give_up("What single steps start from was not kept: the model is too large for that.")
            return ()
        return tuple(self._asked[row * len(self._asked) // count] for row in range(count))

    def _keep_change(self, step: int, before: list[Any]) -> None:
        import numpy

        after, gradients = self.state.sampled_weights(), self._gradients
        rows = {f"{row}": (a - b).numpy() for row, (a, b) in enumerate(zip(after, before, strict=True))}
        for row, weight in enumerate(self.state.weights()):
            if id(weight) in gradients:
                rows[f"gradient {row}"] = gradients[id(weight)].numpy()
        numpy.savez(self._file(step, CHANGE), **rows)
        self._gradients = {}

    def _file(self, step: int, name: str) -> Path:
        return self._folder / f"{step}-{name}"

    def _give_up(self, text: str) -> None:
        """Nothing of it stays: the disk may be full."""
        self._place.hooks.note(text)
        self._place.hooks.found.pop("kept_steps", None)
        self._wanted, self._running = (), None
        _clear(self._folder)


def _clear(folder: Path) -> None:
    for path in folder.glob("*.npz"):
        path.unlink(missing_ok=True)
