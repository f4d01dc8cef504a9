"""Levers of training in several processes, in two real ones: the same losses on each rank; checkpoints load."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from train_on_ranks import Job, Result
from two_ranks import on_ranks

from hotlap.levers.api import all_levers, find
from hotlap.levers.support.data_parallel import MEBIBYTE, buckets
from hotlap.levers.support.situations import make_setting
from hotlap.records import (
    DataParallelFacts,
    ModelFacts,
    OptimizerFacts,
    PhaseAccount,
    ScriptFacts,
    Setting,
    Situation,
)

PROGRAM = Path(__file__).with_name("train_on_ranks.py")
NO_SYNC = make_setting("no-sync", micro_batches=3)
UNEVEN = (3, 3, 1, 3)
JOBS = {
    "plain": Job(),
    "buckets": Job(setting=make_setting("gradient-buckets", bucket_cap_mb=1)),
    "view": Job(setting=make_setting("gradient-bucket-view")),
    "compressed": Job(setting=make_setting("gradient-compression", dtype="float16")),
    "searching": Job(arguments={"find_unused_parameters": True}, unused=True),
    "static": Job(setting=make_setting("static-graph"), arguments={"find_unused_parameters": True}, unused=True),
    "accumulating": Job(updates=UNEVEN, clips=True, optimizer="SGD"),
    "once per step": Job(setting=NO_SYNC, updates=UNEVEN, clips=True, optimizer="SGD"),
}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Result]]:
    """What each of two ranks found in every job."""
    found = on_ranks(PROGRAM, msgspec.json.encode(JOBS), tmp_path_factory.mktemp("ranks"))
    return [msgspec.json.decode(it, type=dict[str, Result]) for it in found]


@pytest.mark.parametrize(("name", "baseline"), [("buckets", "plain"), ("view", "plain"), ("static", "searching")])
def test_losses_weights_and_optimizer_are_the_same_to_the_last_bit_on_each_rank(ranks, name, baseline) -> None:
    for results in ranks:
        found, expected = results[name], results[baseline]
        assert found.losses == expected.losses
        assert found.weights == expected.weights
        assert found.state == expected.state and found.state
        assert not found.notes


def test_the_ranks_train_one_model_on_different_data(ranks) -> None:
    first, second = ranks
    for name in JOBS:
        assert first[name].weights == second[name].weights, name
        assert first[name].losses != second[name].losses, name


def test_compressed_gradients_round_and_change_little_else(ranks) -> None:
    for results in ranks:
        found, expected = results["compressed"], results["plain"]
        assert found.losses[0] == expected.losses[0]
        assert found.losses[1:] != expected.losses[1:]
        assert found.losses == pytest.approx(expected.losses, rel=0.2)
        assert found.facts[0].communication_hook == "fp16_compress_hook"


def test_gradients_exchanged_once_per_step_are_those_of_the_whole_step(ranks) -> None:
    """In a step of fewer micro-batches too, which was not expected."""
    for results in ranks:
        found, expected = results["once per step"], results["accumulating"]
        assert found.losses == pytest.approx(expected.losses, rel=1e-4)
        assert found.gradients == pytest.approx(expected.gradients, rel=1e-4)
        for name, weights in expected.weights.items():
            assert found.weights[name] == pytest.approx(weights, rel=1e-3, abs=1e-6)
        assert found.facts[0].unsynchronised_backwards == 7
        assert expected.facts[0].unsynchronised_backwards == 0
        assert any("fewer micro-batches" in it for it in found.notes)
    assert ranks[0]["once per step"].gradients == ranks[1]["once per step"].gradients


def test_facts_are_the_wrappers_arguments(ranks) -> None:
    (plain,) = ranks[0]["plain"].facts
    assert (plain.backend, plain.processes, plain.bucket_cap_mb) == ("gloo", 2, None)
    assert plain.gradient_bytes == 4 * (32 * 900 + 900 + 900 * 700 + 700 + 700 * 2 + 2)
    assert plain.site is not None and plain.site.file == str(PROGRAM)
    (searching,) = ranks[1]["searching"].facts
    assert searching.find_unused_parameters and not searching.static_graph


# -- when they apply ---------------------------------------------------------------------------------

LEVERS = ("gradient-bucket-view", "gradient-buckets", "gradient-compression", "no-sync", "static-graph")
WRAPPER = DataParallelFacts(backend="gloo", processes=2, gradient_bytes=100 * MEBIBYTE)


def situation(wrapper: DataParallelFacts | None = WRAPPER, **facts: object) -> Situation:
    made: dict[str, object] = {
        "processes": 2,
        "models": (ModelFacts(kind="Net", parameters=1),),
        "optimizers": (OptimizerFacts(kind="SGD", parameters=1, learning_rate=0.1),),
        "data_parallel": (wrapper,) if wrapper is not None else (),
    }
    account = PhaseAccount(wall=0.1, phases=(("forward", 0.03), ("backward", 0.05), ("optimizer", 0.02)))
    return Situation(facts=ScriptFacts(**(made | facts)), account=account)  # type: ignore[arg-type]


def changed(**values: object) -> DataParallelFacts:
    return msgspec.structs.replace(WRAPPER, **values)


@pytest.mark.parametrize("name", LEVERS)
def test_one_process_and_other_wrappers_are_left_alone(name: str) -> None:
    lever = find(name)
    alone, other = lever.obstacle(situation(processes=1)), lever.obstacle(situation(None))
    assert alone is not None and "One process" in alone.reason
    assert other is not None and "DistributedDataParallel" in other.reason


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("gradient-bucket-view", situation(changed(gradient_as_bucket_view=True))),
        ("static-graph", situation()),
        ("no-sync", situation(changed(unsynchronised_backwards=3), backwards_per_step=4.0)),
        ("gradient-compression", situation(changed(communication_hook="bf16_compress_hook"))),
    ],
)
def test_what_the_script_does_already_is_said(name: str, facts: Situation) -> None:
    refused = find(name).obstacle(facts)
    assert refused is not None and refused.already


@pytest.mark.parametrize(
    "facts",
    [
        situation(),
        situation(backwards_per_step=2.5),
        situation(backwards_per_step=4.0, grad_scaler=True),
        situation(changed(static_graph=True), backwards_per_step=4.0),
        situation(backwards_per_step=4.0, optimizers=()),
    ],
)
def test_steps_whose_last_backward_is_unknown_exchange_in_each(facts: Situation) -> None:
    assert find("no-sync").obstacle(facts) is not None


def test_candidates_make_other_numbers_of_buckets() -> None:
    lever = find("gradient-buckets")
    assert [dict(it.values)["bucket_cap_mb"] for it in lever.candidates(situation())] == [5, 50, 200]
    small = situation(changed(gradient_bytes=MEBIBYTE // 2))
    assert not lever.candidates(small) and lever.obstacle(small) is not None
    assert [buckets(100 * MEBIBYTE, it) for it in (None, 25, 100)] == [5, 4, 1]


@pytest.mark.parametrize(("backend", "dtype"), [("gloo", "float16"), ("nccl", "bfloat16")])
def test_gradients_are_compressed_to_what_the_backend_can_add(backend: str, dtype: str) -> None:
    (setting,) = find("gradient-compression").candidates(situation(changed(backend=backend)))
    assert dict(setting.values) == {"dtype": dtype}


@pytest.mark.parametrize("name", ["gradient-buckets", "static-graph"])
def test_sums_of_two_numbers_are_exact(name: str) -> None:
    lever, setting = find(name), Setting(lever=name)
    assert lever.proof_for(situation(), setting) == "exact"
    assert lever.proof_for(situation(changed(processes=4)), setting) == "rounding"


def test_levers_apply_where_there_is_something_to_exchange() -> None:
    facts = situation(changed(find_unused_parameters=True), backwards_per_step=4.0)
    for name in LEVERS:
        assert all_levers()[name].obstacle(facts) is None
        assert all_levers()[name].bound(facts) is not None
