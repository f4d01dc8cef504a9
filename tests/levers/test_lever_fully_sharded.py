"""``fully-sharded`` on two real ranks: a script with DDP trains, saves, loads and evaluates as without it."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
import torch
from two_ranks import on_ranks

sys.path.insert(0, str(Path(__file__).parent))

from fully_sharded_on_ranks import Job, Result

from hotlap.levers.api import find
from hotlap.records import (
    DataParallelFacts,
    EvaluationFacts,
    ModelFacts,
    OptimizerFacts,
    PhaseAccount,
    ScriptFacts,
    Situation,
)

PROGRAM = Path(__file__).with_name("fully_sharded_on_ranks.py")
JOBS = {
    "plain": Job(evaluates_on=(0,)),
    "sharded": Job(shards=True, evaluates_on=(0,)),
    "shared": Job(model="shared", shards=True),
    "early": Job(early_optimizer=True, shards=True),
    "continued without": Job(loads="sharded"),
    "continued with": Job(shards=True, loads="plain"),
}
MORE_JOBS = {
    "plain": Job(evaluates_on=(0, 1)),
    "sharded": Job(shards=False, evaluates_on=(0, 1)),
    "clipping": Job(clips=True, accumulates=True),
    "clipping sharded": Job(clips=True, accumulates=True, shards=True),
}
Ranks = list[dict[str, Result]]


def found_by(jobs: dict[str, Job], folder: Path) -> Ranks:
    """What each of two ranks found in every job."""
    found = on_ranks(PROGRAM, msgspec.json.encode(jobs), folder, 2, str(folder))
    return [msgspec.json.decode(it, type=dict[str, Result]) for it in found]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharded")


@pytest.fixture(scope="module")
def ranks(folder: Path) -> Ranks:
    return found_by(JOBS, folder)


def check(found: Result, expected: Result) -> None:
    """The same training within rounding."""
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)
    assert found.norms == pytest.approx(expected.norms, rel=1e-4)
    assert found.evaluations == pytest.approx(expected.evaluations, rel=1e-4)
    assert found.weights == pytest.approx(expected.weights, rel=1e-3, abs=1e-5)


def test_the_script_trains_and_evaluates_on_one_rank_as_before(ranks: Ranks) -> None:
    for results in ranks:
        check(results["sharded"], results["plain"])
        assert results["sharded"].kinds == ["True", "DTensor"]
        assert not results["sharded"].notes
    assert len(ranks[0]["sharded"].evaluations) == 4 and not ranks[1]["sharded"].evaluations


def test_each_rank_holds_a_part_of_weights_and_state(ranks: Ranks) -> None:
    held, whole = [it["sharded"].held for it in ranks], ranks[0]["plain"].held
    assert sum(held) == whole == ranks[0]["sharded"].whole
    assert max(held) < 0.6 * whole


def test_a_checkpoint_of_the_first_rank_alone_has_whole_tensors(ranks: Ranks, folder: Path) -> None:
    plain, sharded = (torch.load(folder / f"{it}.pt", weights_only=True) for it in ("plain", "sharded"))
    assert list(plain["model"]) == list(sharded["model"])
    assert {type(it) for it in sharded["model"].values()} == {torch.Tensor}
    for name, it in plain["model"].items():
        torch.testing.assert_close(sharded["model"][name], it)
    assert plain["optimizer"]["param_groups"] == sharded["optimizer"]["param_groups"]
    assert list(plain["optimizer"]["state"]) == list(sharded["optimizer"]["state"])
    for index, kept in plain["optimizer"]["state"].items():
        for name, it in kept.items():
            assert type(sharded["optimizer"]["state"][index][name]) is torch.Tensor
            torch.testing.assert_close(sharded["optimizer"]["state"][index][name], it)


def test_a_checkpoint_continues_the_training_with_and_without_the_lever(ranks: Ranks) -> None:
    for results in ranks:
        for name in ("continued without", "continued with"):
            assert results[name].losses == pytest.approx(results["plain"].losses[3:], rel=1e-5)
    assert sum(it["continued with"].held for it in ranks) == ranks[0]["plain"].held


@pytest.mark.parametrize(
    ("name", "reason"), [("shared", "have weights in common"), ("early", "optimizer was made before it was wrapped")]
)
def test_a_model_that_cannot_be_sharded_stays_whole_and_says_why(ranks: Ranks, name: str, reason: str) -> None:
    for results in ranks:
        assert results[name].kinds == ["True", "Parameter"]
        assert [it for it in results[name].notes if reason in it]


@pytest.mark.slow
def test_kept_weights_clipping_accumulation_and_evaluation_on_all_ranks(tmp_path: Path) -> None:
    for results in found_by(MORE_JOBS, tmp_path):
        check(results["sharded"], results["plain"])
        check(results["clipping sharded"], results["clipping"])
        assert len(results["sharded"].evaluations) == 6
        assert len(results["clipping sharded"].norms) == 6


# -- when it applies -------------------------------------------------------------------------------------

WRAPPER = DataParallelFacts(backend="gloo", processes=2, gradient_bytes=1 << 20)
MODEL = ModelFacts(kind="Net", parameters=1)
ADAMW = OptimizerFacts(kind="AdamW", parameters=1, learning_rate=0.1)


def situation(wrapper: DataParallelFacts = WRAPPER, model: ModelFacts = MODEL, **facts: object) -> Situation:
    made: dict[str, object] = {"processes": wrapper.processes, "models": (model,), "optimizers": (ADAMW,)}
    given = made | {"data_parallel": (wrapper,)} | facts
    account = PhaseAccount(wall=0.1, phases=(("forward", 0.03), ("backward", 0.05), ("optimizer", 0.02)))
    return Situation(facts=ScriptFacts(**given), account=account)  # type: ignore[arg-type]


def changed(**values: object) -> DataParallelFacts:
    return msgspec.structs.replace(WRAPPER, **values)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (situation(processes=1), "One process trains"),
        (situation(models=()), "No model was observed"),
        (situation(models=(MODEL, MODEL)), "Several models train"),
        (situation(processes=4), "only some of the processes"),
        (situation(changed(communication_hook="bf16_compress_hook")), "bf16_compress_hook"),
        (situation(changed(find_unused_parameters=True)), "leave out weights"),
        (situation(grad_scaler=True), "GradScaler"),
        (situation(model=msgspec.structs.replace(MODEL, compiled=True)), "compiles its model"),
        (situation(model=msgspec.structs.replace(MODEL, device="mps"), device="mps:0"), "not supported on mps"),
        (situation(optimizers=(msgspec.structs.replace(ADAMW, from_torch=False),)), "not torch's own"),
        (situation(changed(processes=16), evaluation=EvaluationFacts()), "Each of 16 processes"),
    ],
)
def test_why_it_does_not_apply(facts: Situation, reason: str) -> None:
    refused = find("fully-sharded").obstacle(facts)
    assert refused is not None and reason in refused.reason


def test_it_applies_to_one_wrapped_model() -> None:
    lever = find("fully-sharded")
    assert lever.obstacle(situation()) is None
    assert lever.obstacle(situation(evaluation=EvaluationFacts())) is None
    assert [dict(it.values)["reshard_after_forward"] for it in lever.candidates(situation())] == [True, False]


def test_memory_that_it_cannot_save_is_no_reason_to_try_it() -> None:
    """A model of 1 MB in each of two processes: half of 4 MB, and DDP's own copy of the gradients."""
    model = msgspec.structs.replace(MODEL, parameter_bytes=1 << 20)
    facts = situation(model=model, optimizers=(msgspec.structs.replace(ADAMW, state_bytes=2 << 20),))
    lever = find("fully-sharded")
    refused = lever.obstacle(msgspec.structs.replace(facts, host_peak_bytes=2000 << 20))
    assert refused is not None and refused.reason == "It could save 3.0 MiB per process at most, of 1,000 MiB."
    assert lever.obstacle(msgspec.structs.replace(facts, host_peak_bytes=500 << 20)) is None
    assert (
        lever.obstacle(msgspec.structs.replace(facts, device_peak_bytes=100 << 20, host_peak_bytes=2000 << 20)) is None
    )
