"""Both instruments of single steps, hung onto the hooks of one process: what they do when something goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from hotlap.records import KEPT_STEPS, KeepSteps, RestoreSteps
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.instruments import keep_steps, restore_steps
from hotlap.runtime.instruments.api import Place
from hotlap.runtime.training_state import TrainingState

STEPS = tuple(range(2, 14, 2))


class Process:
    """A process that trains, with the hooks and the clock of a trial."""

    def __init__(self, seed: int = 0, width: int = 4) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1))
        self.hooks = Hooks(torch)
        self.clock = SimpleNamespace(steps_done=0)
        roots = SimpleNamespace(all=lambda: (self.model,))
        interception = SimpleNamespace(hooks=self.hooks, roots=roots)
        self.place = cast(Place, SimpleNamespace(hooks=self.hooks, interception=interception, clock=self.clock))

    def train(self, steps: int = 16, before: Callable[[int], None] = lambda step: None) -> dict[str, Any]:
        """What the instruments found."""
        optimizer = self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        for tell in self.hooks.after_optimizer:
            tell(optimizer)
        draws = torch.Generator().manual_seed(1)
        for step in range(steps):
            before(step)
            optimizer.zero_grad()
            self.model(torch.randn(8, 3, generator=draws)).square().mean().backward()
            for update in self.hooks.before_update:
                update(optimizer)
            optimizer.step()
            self.clock.steps_done += 1
            for ended in self.hooks.step_ended:
                ended()
        return self.hooks.found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(KEPT_STEPS, str(tmp_path))
    return tmp_path


def kept(process: Process, most_bytes: int = 10**6, before: Callable[[int], None] = lambda step: None) -> Any:
    keep_steps.install(process.place, KeepSteps(steps=STEPS, most_bytes=most_bytes))
    return process.train(before=before).get("kept_steps")


def restored(process: Process) -> dict[int, float | None]:
    restore_steps.install(process.place, RestoreSteps())
    return {it.step: it.error for it in process.train().get("restored_steps", ())}


def test_steps_start_from_those_of_another_process(folder: Path) -> None:
    assert kept(Process()) == STEPS
    assert restored(Process(seed=5)) == dict.fromkeys(STEPS, 0.0)


def test_as_many_are_kept_as_there_is_room_for(folder: Path) -> None:
    own = Process()
    own.train()
    size = TrainingState(torch, lambda: [own.model], [own.optimizer]).size_in_bytes
    assert kept(Process(), most_bytes=6 * size - 1) == (2, 4, 6, 8, 10)
    assert sorted({it.name.partition("-")[0] for it in folder.iterdir()}) == ["10", "2", "4", "6", "8"]
    few = Process()
    assert kept(few, most_bytes=5 * size - 1) is None and not list(folder.iterdir())
    assert few.hooks.notes == ["What single steps start from was not kept: the model is too large for that."]


def test_a_full_disk_ends_no_training(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing stays on it."""
    saved = TrainingState.save

    def save(self: TrainingState, path: Path) -> None:
        saved(self, path)
        if path.name.startswith("8-"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(TrainingState, "save", save)
    process = Process()
    assert kept(process) is None and not list(folder.iterdir()) and process.clock.steps_done == 16
    assert "No space left on device" in process.hooks.notes[0]


@pytest.mark.parametrize("name", ["6-state.npz", "6-change.npz"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", None])
def test_what_cannot_be_read_ends_no_training(folder: Path, name: str, content: bytes | None) -> None:
    assert kept(Process()) == STEPS
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    process = Process(seed=5)
    found = restored(process)
    assert process.clock.steps_done == 16 and set(found) < set(STEPS) and {2, 4} <= set(found)
    if content is not None or "state" in name:
        assert "could not be started" in process.hooks.notes[0] and len(process.hooks.notes) == 1


def test_another_network_is_left_alone(folder: Path) -> None:
    assert kept(Process()) == STEPS
    process = Process(width=5)
    assert not restored(process) and "could not be started" in process.hooks.notes[0]


def test_what_an_earlier_run_kept_is_replaced(folder: Path) -> None:
    assert kept(Process()) == STEPS
    (folder / "99-state.npz").write_bytes(b"")
    assert kept(Process(seed=5)) == STEPS and not (folder / "99-state.npz").exists()
    assert restored(Process(seed=6)) == dict.fromkeys(STEPS, 0.0)
