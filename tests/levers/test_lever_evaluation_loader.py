"""Workers for the loaders of an evaluation: the same batches, and the same numbers for training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import EvaluationFacts, LoaderFacts, Machine, ScriptFacts, Situation

SETTING = make_setting("evaluation-loader", num_workers=1, pin_memory=False, persistent_workers=True)


class Squares(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int):
        return torch.tensor([float(index), float(index * index)])


def run(driver: Any) -> tuple[list[Any], list[Any], DataLoader, DataLoader]:
    """Two epochs that shuffle, each followed by an evaluation; what was read, and both loaders."""
    torch.manual_seed(4)
    training = driver.loader(Squares(), batch_size=4, shuffle=True)
    evaluating = driver.loader(Squares(), batch_size=4)
    trained, evaluated = [], []
    for _ in range(2):
        trained += [it.tolist() for it in driver.batches(training)]
        with torch.no_grad():
            evaluated += [it.tolist() for it in driver.batches(evaluating)]
    return trained, evaluated, training, evaluating


def test_only_the_loader_of_the_evaluation_gets_workers(driver, driver_kind) -> None:
    trained, evaluated, *_ = run(driver_kind())
    driver.install(SETTING)
    same_trained, same_evaluated, training, evaluating = run(driver)
    assert (same_trained, same_evaluated) == (trained, evaluated), "shuffles too"
    assert training.num_workers == 0 and evaluating.num_workers == 1 and evaluating.persistent_workers
    del evaluating._iterator


def test_a_loader_that_an_evaluation_mode_reads_is_one_of_an_evaluation(driver, model, batch) -> None:
    driver.install(SETTING)
    loader = driver.loader(Squares(), batch_size=4)
    driver.forward(model.train(), batch[0])
    driver.start(loader, make=lambda it: None)
    assert loader.num_workers == 0
    model.eval()
    driver.start(loader, make=lambda it: None)
    assert loader.num_workers == 1


def situation(cores: int = 2, **facts: Any) -> Situation:
    usual: dict[str, Any] = {"dataset": "Squares", "evaluates": True, "trains": False}
    loaders = (LoaderFacts(**{**usual, **facts}),) if facts.pop("loaders", True) else ()
    machine = Machine(cores=cores, physical_cores=cores)
    return Situation(facts=ScriptFacts(evaluation=EvaluationFacts(forwards=2), loaders=loaders), machine=machine)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (situation(), None),
        (situation(trains=True), "only read for evaluation"),
        (situation(evaluates=False), "only read for evaluation"),
        (situation(workers=2), "have workers"),
        (situation(draws_random=True), "draws random numbers"),
        (Situation(), "No evaluation was observed"),
    ],
)
def test_it_is_tried_where_an_evaluation_loads_its_data_itself(where: Situation, reason: str | None) -> None:
    refused = find("evaluation-loader").obstacle(where)
    assert (refused is None) if reason is None else (refused is not None and reason in refused.reason)


def test_it_tries_one_worker_and_one_for_each_core() -> None:
    candidates = find("evaluation-loader").candidates
    assert [dict(it.values)["num_workers"] for it in candidates(situation(8))] == [1, 4]
    assert [dict(it.values)["num_workers"] for it in candidates(situation(1))] == [1]
