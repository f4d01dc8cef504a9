"""What a step starts from goes through a file into another process, whatever form that one holds it in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hotlap.runtime.training_state import MOST_OF_A_WEIGHT, UNREADABLE, OtherState, TrainingState

KINDS = {
    "adam": lambda weights: torch.optim.AdamW(weights, lr=0.01),
    "fused adam": lambda weights: torch.optim.AdamW(weights, lr=0.01, fused=True),
    "amsgrad": lambda weights: torch.optim.Adam(weights, lr=0.01, amsgrad=True),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9),
    "plain": lambda weights: torch.optim.SGD(weights, lr=0.01),
}


class Training:
    """A small network with a batch normalization, trained for a few steps from a seed."""

    def __init__(self, kind: str, seed: int, *, width: int = 6, channels_last: bool = False) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten(), nn.Linear(width * 36, 4)
        )
        if channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = KINDS[kind](self.model.parameters())
        self.state = TrainingState(torch, lambda: [self.model], [self.optimizer])
        self.draws = torch.Generator().manual_seed(seed)
        for _ in range(3):
            self.step()

    def step(self, inputs: torch.Tensor | None = None) -> float:
        batch = torch.randn(5, 3, 8, 8, generator=self.draws) if inputs is None else inputs
        self.optimizer.zero_grad()
        loss = self.model(batch).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def values(self) -> list[torch.Tensor]:
        return [it.detach().clone() for it in (*self.model.parameters(), *self.model.buffers())]


def same(one: Training, other: Training) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.values(), other.values(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_step_is_the_same(kind: str, tmp_path: Path) -> None:
    ours, theirs = Training(kind, 0), Training(kind, 1)
    assert not same(ours, theirs)
    ours.state.save(tmp_path / "state.npz")
    theirs.state.load(tmp_path / "state.npz")
    batch = torch.randn(5, 3, 8, 8)
    assert ours.step(batch) == theirs.step(batch) and same(ours, theirs)
    changes = sum(2 * 8 * it.numel() for it in ours.state.sampled_weights())
    assert (tmp_path / "state.npz").stat().st_size > ours.state.size_in_bytes - changes > 0


def test_other_forms_take_the_values_over_as_they_are(tmp_path: Path) -> None:
    ours, theirs = Training("adam", 0), Training("fused adam", 1, channels_last=True)
    ours.state.save(tmp_path / "state.npz")
    theirs.state.load(tmp_path / "state.npz")
    assert same(ours, theirs)
    assert next(theirs.model.parameters()).is_contiguous(memory_format=torch.channels_last)
    batch = torch.randn(5, 3, 8, 8)
    assert ours.step(batch) == pytest.approx(theirs.step(batch.to(memory_format=torch.channels_last)), rel=1e-5)


def test_half_precision_comes_back(tmp_path: Path) -> None:
    ours, theirs = Training("adam", 0), Training("adam", 1)
    for it in (ours, theirs):
        it.model[4].to(torch.bfloat16)
    ours.state.save(tmp_path / "state.npz")
    theirs.state.load(tmp_path / "state.npz")
    assert same(ours, theirs) and theirs.model[4].weight.dtype is torch.bfloat16


@pytest.mark.parametrize(("kind", "width"), [("momentum", 6), ("adam", 8)])
def test_another_state_is_left_alone(kind: str, width: int, tmp_path: Path) -> None:
    """Of another optimizer, or of another width."""
    other = Training(kind, 1, width=width)
    Training("adam", 0).state.save(tmp_path / "state.npz")
    before = other.values()
    with pytest.raises(OtherState):
        other.state.load(tmp_path / "state.npz")
    assert all(torch.equal(a, b) for a, b in zip(before, other.values(), strict=True))


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 no archive", b"\x93NUMPY"])
def test_a_damaged_file_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((OtherState, *UNREADABLE)):
        Training("adam", 0).state.load(path)


def test_what_is_pickled_is_refused(tmp_path: Path) -> None:
    import numpy as np

    training = Training("plain", 0)
    training.state.save(tmp_path / "state.npz")
    with np.load(tmp_path / "state.npz") as rows:
        held: dict[str, Any] = dict(rows)
    held["0"] = np.array([print], dtype=object)
    np.savez(tmp_path / "state.npz", **held)
    with pytest.raises(ValueError, match="pickle"):
        training.state.load(tmp_path / "state.npz")


def test_a_sample_stands_for_all_elements_of_a_weight() -> None:
    large, small = nn.Parameter(torch.arange(3.0 * MOST_OF_A_WEIGHT + 1)), nn.Parameter(torch.ones(2, 3))
    state = TrainingState(torch, lambda: [], [torch.optim.SGD([large, small, large][:2], lr=0.1)])
    samples = state.sampled_weights()
    assert [it.numel() for it in samples] == [-(-large.numel() // 4), 6]
    assert [round(share * it.numel()) for share, it in zip(state.shares(), samples, strict=True)] == [large.numel(), 6]
    with torch.no_grad():
        small.zero_()
    assert samples[1].sum() == 6, "it is a copy"


def test_sparse_gradients_are_not_compared() -> None:
    table = nn.Embedding(10, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters())
    table(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(OtherState):
        TrainingState(torch, lambda: [], [optimizer]).sampled_gradients(optimizer)
