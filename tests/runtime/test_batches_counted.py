"""How many samples a step has, as the loader or its batch says, and batches that are replayed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from watching import Watched, data, train_on


def sequence_first(samples: list[Any]) -> torch.Tensor:
    return torch.stack([it[0].repeat(35, 1) for it in samples], dim=1)


def test_samples_are_those_of_the_loaders_batch_whatever_comes_first(watched: Watched) -> None:
    train_on(DataLoader(data(), batch_size=16, collate_fn=sequence_first))
    assert watched.steps().samples == (16, 16, 8), "and not the 35 of the sequence"
    assert watched.clock.samples_from == "loader"


def test_a_loader_that_is_read_for_long_is_not_forgotten_for_others_in_between(watched: Watched) -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(data(20 * 16), batch_size=16, collate_fn=sequence_first):
        for _ in range(10):  # a new loader for each of two hundred evaluations
            with torch.no_grad():
                next(iter(DataLoader(data(2), batch_size=2)))
        model(batch).mean().backward()
        optimizer.step()
    assert watched.steps().samples == (16,) * 20
    assert watched.clock.samples_from == "loader"


@pytest.mark.parametrize(
    ("collate", "samples"),
    [
        (lambda samples: torch.cat([it[0].repeat(90, 1) for it in samples]), (16, 16, 16)),  # graphs in one
        (lambda samples: [it[0] for it in samples], (16, 16, 16)),  # images of many sizes
        (None, (16, 16, 8)),
    ],
)
def test_batches_without_a_dimension_of_samples_hold_what_the_loader_says(
    watched: Watched, collate: Any, samples: tuple[int, ...]
) -> None:
    train_on(DataLoader(data(), batch_size=16, collate_fn=collate))
    assert watched.steps().samples == samples


def test_a_data_set_smaller_than_a_batch(watched: Watched) -> None:
    train_on(DataLoader(data(10), batch_size=64))
    assert watched.steps().samples == (10,)


def test_without_a_batch_size_the_first_dimension_counts(watched: Watched) -> None:
    train_on(DataLoader(data(), batch_size=None))
    assert watched.clock.samples_from == "batch"
    sampler = torch.utils.data.BatchSampler(range(40), batch_size=16, drop_last=False)
    train_on(DataLoader(data(), batch_sampler=sampler))
    assert watched.steps().samples[-3:] == (16, 16, 8)
    assert watched.clock.samples_from == "loader"


def test_without_a_loader_the_samples_are_a_guess(watched: Watched) -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(35, 20, 8)).mean().backward()
    optimizer.step()
    assert watched.clock.samples_from == "inputs"
    model.weight.sum().backward()
    optimizer.step()
    assert watched.clock.samples_from == "none"


def test_a_replayed_batch_may_be_taken_apart(watched: Watched) -> None:
    from hotlap.runtime.instruments.replay_batch import replay_first_batches

    replay_first_batches(watched.hooks)
    rows = [{"inputs": torch.full((2,), float(row)), "labels": torch.tensor(row)} for row in range(12)]
    seen = []
    for batch in DataLoader(rows, batch_size=4):  # type: ignore[arg-type]
        seen.append(batch.pop("labels").tolist())
        assert set(batch) == {"inputs"}
    assert seen == [[0, 1, 2, 3]] * 3, "the first batch, as often as the epoch has batches"


def test_a_replayed_batch_may_be_grown_and_cut() -> None:
    from hotlap.runtime.instruments.replay_batch import resized

    batch = {"inputs": torch.arange(6).reshape(3, 2), "labels": (torch.arange(3), torch.tensor(7)), "name": "x"}
    grown = resized(batch, 2.5)
    assert grown["inputs"].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]
    assert grown["labels"][0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert (grown["labels"][1].item(), grown["name"]) == (7, "x")
    assert resized(batch, 0.5)["inputs"].tolist() == [[0, 1], [2, 3]]
    assert resized(batch, 0.01)["labels"][0].tolist() == [0]
    assert resized(batch, 1.0) is batch and resized("no tensors", 2.0) == "no tensors"
    assert batch["inputs"].shape == (3, 2), "the script's own batch is unchanged"


def test_a_grown_batch_is_counted_with_all_its_samples(watched: Watched) -> None:
    from hotlap.runtime.instruments.replay_batch import replay_first_batches

    replay_first_batches(watched.hooks, 2.0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (batch,) in DataLoader(TensorDataset(torch.ones(12, 4)), batch_size=4):
        model(batch).sum().backward()
        optimizer.step()
    assert watched.steps().samples == (8, 8, 8)
