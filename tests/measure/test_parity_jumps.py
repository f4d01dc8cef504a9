"""Gate G2 on a network with ReLUs and pools, whose first gradient jumps where rounding moves an activation across a
threshold: where the losses show that rounding is amplified, a healthy lever passes in every first step, and a fault in
none."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hotlap.measure.parity.first_step import first_step
from hotlap.records import Run

SEEDS = range(6)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(images + self.second(torch.relu(self.norm(self.first(images)))))


class Case:
    """The first step of a network of that seed, as a run captures it."""

    def __init__(self, seed: int, folder: Path) -> None:
        torch.manual_seed(seed)
        self.folder = folder
        stem = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5))
        self.model = nn.Sequential(stem, *(Block(32) for _ in range(6)), head)
        self.images, self.labels = torch.randn(16, 3, 48, 48), torch.randint(0, 5, (16,))
        self.baseline = self.step("baseline", self.model, self.images)
        self.reference = self.step("reference", copy.deepcopy(self.model).double(), self.images.double())

    def step(self, name: str, model: nn.Module, images: torch.Tensor, *, scaled: float = 1.0) -> Run:
        model = copy.deepcopy(model)
        loss = nn.functional.cross_entropy(model(images), self.labels)
        loss.backward()
        arrays = {f"gradient/{key}": it.grad.numpy() for key, it in model.named_parameters() if it.grad is not None}
        arrays["gradient/2.first.weight"] = arrays["gradient/2.first.weight"] * scaled
        path = self.folder / f"{name}.npz"
        np.savez(path, loss=loss.detach().numpy(), **arrays)  # type: ignore[arg-type]
        return Run(gradients_path=str(path))

    def channels_last(self, *, scaled: float = 1.0) -> Run:
        model = copy.deepcopy(self.model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = self.images.to(memory_format=torch.channels_last)
        return self.step("channels last", model, images, scaled=scaled)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_healthy_lever_passes_and_a_fault_does_not(seed: int, tmp_path: Path) -> None:
    case = Case(seed, tmp_path)
    for scaled, passes in ((1.0, True), (1.2, False)):
        got = first_step(
            case.baseline,
            case.channels_last(scaled=scaled),
            changes_precision=False,
            reference=case.reference,
            amplifies=True,
        )
        assert got.passed is passes, got.text
