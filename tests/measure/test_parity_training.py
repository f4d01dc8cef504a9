"""Parity on a real training: bugs planted in a small language model are caught, healthy levers pass.

Runs are recorded here by hand, as the runtime records a user's script: the gates see nothing but records.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from hotlap.measure.parity.invariants import NAMES
from hotlap.measure.parity.verdict import ParityEvidence, judge
from hotlap.records import Completed, GateResult, Invariants, Parity, Proof, Run, Steps

STEPS, BATCH, CONTEXT, WIDTH = 300, 16, 32, 48


@dataclass(frozen=True, kw_only=True)
class Training:
    """One way to train; every field that is not at its default is a lever or a bug."""

    learning_rate: float = 3e-3
    weight_decay: float = 0.1
    clip: float = 1.0
    dropout: float = 0.0
    fused: bool = False
    autocast: bool = False
    dtype: torch.dtype = torch.float32
    zero_grad: bool = True
    evaluation_mode: bool = False
    repeats: int = 1
    halves: bool = False
    nudge: bool = False


PLAIN = Training()


class LanguageModel(nn.Module):
    """One transformer block over bytes."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(128, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.before_attention, self.before_mixing = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.mixing = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(WIDTH, 128)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.dropout(self.token(tokens) + self.place.weight)
        parts = self.attention(self.before_attention(hidden)).view(*tokens.shape, 3, 4, WIDTH // 4)
        query, key, value = (it.transpose(1, 2) for it in parts.unbind(2))
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.dropout(attended.transpose(1, 2).flatten(2))
        return self.head(hidden + self.dropout(self.mixing(self.before_mixing(hidden))))


def batches(repeats: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    text = torch.frombuffer(bytearray(Path(argparse.__file__).read_bytes()), dtype=torch.uint8).long().clamp(max=127)
    source = torch.Generator().manual_seed(1)
    drawn = [torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=source) for _ in range(STEPS)]
    for step in range(STEPS):
        rows = drawn[step // repeats][:, None] + torch.arange(CONTEXT + 1)
        yield text[rows[:, :-1]], text[rows[:, 1:]]


def loss_of(model: nn.Module, training: Training, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    parts = [slice(None, BATCH // 2), slice(BATCH // 2, None)] if training.halves else [slice(None)]
    region = torch.autocast("cpu", torch.bfloat16) if training.autocast else contextlib.nullcontext()
    with region:
        losses = [functional.cross_entropy(model(tokens[it]).flatten(0, 1), targets[it].flatten()) for it in parts]
        return torch.stack(losses).mean()


def train(training: Training, gradients: Path) -> Run:
    """Train, and record what the gates need."""
    torch.manual_seed(0)
    model = LanguageModel(training.dropout)
    if training.nudge:
        with torch.no_grad():
            for it in model.parameters():
                it.copy_(torch.nextafter(it, torch.full_like(it, float("inf"))))
    model = model.to(training.dtype).train(not training.evaluation_mode)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay, fused=training.fused
    )
    losses: list[float] = []
    hashes: list[str] = []
    for tokens, targets in batches(training.repeats):
        if training.zero_grad:
            optimizer.zero_grad()
        loss = loss_of(model, training, tokens, targets)
        loss.backward()
        if not losses:
            named = {f"gradient/{name}": it.grad.float().numpy() for name, it in model.named_parameters()}
            np.savez(gradients, loss=np.float64(loss.item()), **named)  # type: ignore[arg-type]
        nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimizer.step()
        losses.append(loss.item())
        hashes.append(hashlib.sha256(tokens.numpy().tobytes()).hexdigest()[:12])
    return Run(
        ending=Completed(),
        steps=Steps(loss=tuple(losses)),
        gradients_path=str(gradients),
        invariants=Invariants(
            learning_rates=((training.learning_rate,),) * STEPS,
            weight_decays=((training.weight_decay,),) * STEPS,
            clip_values=(training.clip,) * STEPS,
            samples=(BATCH,) * STEPS,
            batch_hashes=tuple(hashes),
            dropout=(training.dropout,),
            training=(model.training,) * STEPS,
            trainable=(len(list(model.parameters())),) * STEPS,
        ),
    )


Trained = Callable[[Training], Run]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    """Train each way once; the baseline's repeat has an entry of its own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("gradients")
    done: dict[Training, Run] = {}

    def once(training: Training) -> Run:
        if training not in done:
            done[training] = train(training, folder / f"{len(done)}.npz")
        return done[training]

    yield once
    torch.set_num_threads(threads)


def verdict(
    trained: Trained,
    candidate: Training,
    *,
    baseline: Training = PLAIN,
    proof: Proof = "rounding",
    changes_precision: bool = True,
    allowed: frozenset[str] = frozenset(),
) -> Parity:
    own = trained(baseline)
    return judge(
        ParityEvidence(
            baseline=own,
            baseline_again=own,
            candidate=trained(candidate),
            proof=proof,
            nudged=(trained(replace(baseline, nudge=True)),),
            changes_precision=changes_precision,
            allowed=allowed,
        )
    )


def gate(comparison: Parity, name: str) -> GateResult:
    return next(it for it in comparison.gates if it.gate == name)


DROPPING = Training(dropout=0.1)
BUGS: dict[str, tuple[Training, Training]] = {
    "missing zero_grad": (PLAIN, Training(zero_grad=False)),
    "over-clipping": (PLAIN, Training(clip=0.05)),
    "learning rate 5 % too high": (PLAIN, Training(learning_rate=3e-3 * 1.05)),
    "eval() by mistake": (DROPPING, Training(dropout=0.1, evaluation_mode=True)),
    "repeated batches": (PLAIN, Training(repeats=2)),
    "pure bf16 weights": (PLAIN, Training(dtype=torch.bfloat16)),
}


CAUGHT_IN_LAUNCHES = ("missing zero_grad", "pure bf16 weights")
"""Also planted in a script: see ``tests/end_to_end/test_parity.py``."""


def test_the_training_repeats_itself_to_the_last_bit(trained: Trained, tmp_path: Path) -> None:
    again = train(PLAIN, tmp_path / "again.npz")
    own = trained(PLAIN)
    assert own.steps.loss[-1] is not None
    assert own.steps.loss[0] is not None
    assert own.steps.loss[-1] < 0.6 * own.steps.loss[0]
    got = judge(ParityEvidence(baseline=own, baseline_again=again, candidate=again, proof="exact"))
    assert got.verdict == "exact"


@pytest.mark.parametrize(
    "bug", [pytest.param(it, marks=[pytest.mark.slow] if it in CAUGHT_IN_LAUNCHES else []) for it in BUGS]
)
def test_the_trajectory_alone_catches(bug: str, trained: Trained) -> None:
    """With every invariant allowed to change, so that only the losses can tell."""
    baseline, candidate = BUGS[bug]
    got = verdict(trained, candidate, baseline=baseline, allowed=NAMES - {"samples"})
    assert got.verdict == "lost"
    assert gate(got, "G3").passed is False, got.gates


def test_a_lost_weight_decay_is_caught_by_the_invariants(trained: Trained) -> None:
    got = verdict(trained, Training(weight_decay=0.0))
    assert got.verdict == "lost"
    assert gate(got, "G0").passed is False


@pytest.mark.parametrize("name", ["over-clipping", "eval() by mistake", "repeated batches"])
def test_the_invariants_name_the_bug(name: str, trained: Trained) -> None:
    baseline, candidate = BUGS[name]
    assert gate(verdict(trained, candidate, baseline=baseline), "G0").passed is False


@pytest.mark.parametrize(
    "lever", [Training(autocast=True), Training(fused=True), Training(halves=True)], ids=["bf16", "fused", "re-ordered"]
)
def test_a_healthy_lever_passes(lever: Training, trained: Trained) -> None:
    got = verdict(trained, lever)
    assert got.verdict == "within", got.gates
    assert gate(got, "G2").passed is True
    assert gate(got, "G3").limit == pytest.approx(0.001, rel=1.0)


def test_bf16_is_not_exact(trained: Trained) -> None:
    assert verdict(trained, Training(autocast=True), proof="exact").verdict == "lost"
