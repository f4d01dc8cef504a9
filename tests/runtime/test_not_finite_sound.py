"""Legitimate infinities are not reported, and no number changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hunting import INFINITY, Calls, Hunt, fit, ones
from torch import nn


class Attention(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.project = nn.Linear(8, 24)
        self.register_buffer("mask", torch.full((5, 5), -INFINITY).triu(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(x).chunk(3, dim=-1)
        if self.kind == "fused":
            return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        if self.kind == "fused-masked":
            return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=self.mask == 0)
        scores = query @ key.transpose(1, 2) / 8**0.5
        if self.kind == "added":
            scores = scores + self.mask
        elif self.kind == "filled":
            scores = scores.masked_fill(self.mask != 0, -INFINITY)
        else:
            scores = torch.where(self.mask == 0, scores, torch.tensor(-INFINITY))
        return scores.softmax(dim=-1) @ value


@pytest.mark.parametrize("kind", ["added", "filled", "chosen", "fused", "fused-masked"])
def test_attention_with_a_mask(kind: str, hunt: Hunt) -> None:
    assert hunt(lambda: fit(Attention(kind), [torch.randn(2, 5, 8) for _ in range(3)])) is None


def masked_log(x: torch.Tensor) -> torch.Tensor:
    log = torch.relu(x.detach()).log()
    return torch.where(torch.isinf(log), torch.zeros(()), log) + x


def replaced(x: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num((x.detach() - x.detach()) / 0) + x


def largest(x: torch.Tensor) -> torch.Tensor:
    best = torch.full((3,), -INFINITY)
    return torch.maximum(best, x.amax(dim=1)) + torch.tensor([1.0, INFINITY, 2.0]).clamp(max=5.0)


def partly_filled(x: torch.Tensor) -> torch.Tensor:
    results = torch.empty(3, 4)
    for row in range(3):
        results[row] = x[row]
    return results


@pytest.mark.parametrize("function", [masked_log, replaced, largest, partly_filled], ids=lambda it: it.__name__)
def test_infinities_that_reach_nothing(function: Callable[[torch.Tensor], torch.Tensor], hunt: Hunt) -> None:
    assert hunt(lambda: fit(Calls(function), [torch.randn(3, 4) for _ in range(3)])) is None


def test_gradients_that_a_scaler_leaves_out(hunt: Hunt) -> None:
    """A scale that is far too large overflows in the first steps, until the scaler has halved it often enough."""
    updates: list[int] = []

    def train() -> None:
        model = Calls(lambda x: x.half().float())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        optimizer.register_step_post_hook(lambda *given: updates.append(1))
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
        for batch in [torch.randn(3, 4) for _ in range(20)]:
            optimizer.zero_grad()
            scaler.scale(model(batch).mean()).backward()
            scaler.step(optimizer)
            scaler.update()

    assert hunt(train) is None
    assert 0 < len(updates) < 20, "some updates were left out, others were made"


def test_a_fused_optimizer_under_a_scaler(hunt: Hunt) -> None:
    def train() -> None:
        model = Calls(lambda x: x.half().float())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
        for batch in [torch.randn(3, 4) for _ in range(20)]:
            optimizer.zero_grad()
            scaler.scale(model(batch).mean()).backward()
            scaler.step(optimizer)
            scaler.update()

    assert hunt(train) is None


def test_weights_that_were_infinite_from_the_start(hunt: Hunt) -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 4)
            with torch.no_grad():
                self.table.weight[4] = -INFINITY

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.table(x)
            return result

    batches = [torch.randint(0, 4, (3,)) for _ in range(3)]
    assert hunt(lambda: fit(Padded(), batches), check_from=None) is None
    assert hunt(lambda: fit(Padded(), batches)) is None


def test_the_check_changes_no_number(hunt: Hunt) -> None:
    def losses() -> list[float]:
        found: list[float] = []

        def train() -> None:
            model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten())
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            for _ in range(6):
                optimizer.zero_grad()
                loss = model(torch.randn(3, 2, 8)).square().mean()
                loss.backward()
                optimizer.step()
                found.append(loss.item())

        torch.manual_seed(0)
        if checked:
            assert hunt(train) is None
        else:
            train()
        return found

    checked = False
    plain = losses()
    checked = True
    assert losses() == plain


def test_recomputed_and_recurrent_models(hunt: Hunt) -> None:
    from torch.utils.checkpoint import checkpoint

    def again(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(lambda y: y.sin().cos(), x, use_reentrant=False)
        return result

    assert hunt(lambda: fit(Calls(again), ones())) is None

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0]  # type: ignore[no-any-return]

    assert hunt(lambda: fit(Recurrent(), [torch.randn(3, 1, 4) for _ in range(3)])) is None
