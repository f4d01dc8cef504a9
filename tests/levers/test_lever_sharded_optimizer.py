"""``sharded-optimizer`` on two real ranks: the same numbers, half of the state, and checkpoints as without it."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
import torch
from two_ranks import on_ranks

sys.path.insert(0, str(Path(__file__).parent))

from sharded_on_ranks import Job, Result

from hotlap.levers.api import find
from hotlap.levers.support.shares import BUCKET_BYTES, buckets, owners
from hotlap.records import DataParallelFacts, OptimizerFacts, PhaseAccount, ScriptFacts, Situation

PROGRAM = Path(__file__).with_name("sharded_on_ranks.py")
PAIRS: dict[str, dict[str, object]] = {
    "adamw": {},
    "closure": {"closure": True},
    "grows": {"grows": True},
    "beside": {"beside": True},
}
MORE_PAIRS: dict[str, dict[str, object]] = {
    "momentum": {"optimizer": "SGD", "arguments": {"momentum": 0.9}},
    "fused": {"arguments": {"fused": True}},
    "looped": {"optimizer": "Adagrad", "arguments": {"foreach": False}},
    "groups": {"groups": True},
    "scaled": {"scaler": True},
}
OTHERS = {
    "lbfgs": Job(shared=True, optimizer="LBFGS", closure=True),
    "continued without": Job(shared=False, loads="adamw shared"),
    "continued with": Job(shared=True, loads="adamw"),
    "saved by both": Job(shared=True, saves_on=(0, 1)),
    "last": Job(shared=True, late=True),
}
Ranks = list[dict[str, Result]]


def pairs(wanted: dict[str, dict[str, object]]) -> dict[str, Job]:
    """Each with and without the lever."""
    return {
        f"{name}{suffix}": Job(shared=bool(suffix), **it)  # type: ignore[arg-type]
        for name, it in wanted.items()
        for suffix in ("", " shared")
    }


def found_by(jobs: dict[str, Job], folder: Path) -> Ranks:
    """What each of two ranks found in every job."""
    found = on_ranks(PROGRAM, msgspec.json.encode(jobs), folder, 2, str(folder))
    return [msgspec.json.decode(it, type=dict[str, Result]) for it in found]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharded")


@pytest.fixture(scope="module")
def ranks(folder: Path) -> Ranks:
    return found_by(pairs(PAIRS) | OTHERS, folder)


def check_pair(ranks: Ranks, name: str, folder: Path) -> None:
    """The same numbers to the last bit, the state divided, and the first rank's checkpoint as without the lever."""
    for results in ranks:
        plain, shared = results[name], results[f"{name} shared"]
        assert shared.losses == plain.losses
        assert shared.weights == plain.weights
        assert not shared.notes and shared.equal_groups
    held, whole = [results[f"{name} shared"].held for results in ranks], ranks[0][name].held
    outside = 2 * 2 * 2 if name == "beside" else 0  # two numbers for each weight that no wrapper holds, on both ranks
    assert sum(held) == whole + outside
    assert max(held) < 0.7 * whole
    saved, expected = (torch.load(folder / f"{it}.pt", weights_only=True) for it in (f"{name} shared", name))
    assert expected["optimizer"]["state"]
    assert same(saved, expected)


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_training_with_half_of_the_state_on_each_rank(ranks: Ranks, folder: Path, name: str) -> None:
    check_pair(ranks, name, folder)


@pytest.mark.slow
def test_other_optimizers_groups_and_scalers(tmp_path: Path) -> None:
    more = found_by(pairs(MORE_PAIRS), tmp_path)
    for name in MORE_PAIRS:
        check_pair(more, name, tmp_path)


def same(one: object, other: object) -> bool:
    """Of nested dictionaries and lists with tensors."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def test_a_checkpoint_continues_the_training_with_and_without_the_lever(ranks: Ranks) -> None:
    for results in ranks:
        for name in ("continued without", "continued with"):
            assert results[name].losses == results["adamw"].losses[3:]
            assert results[name].weights == results["adamw"].weights
    assert sum(results["continued with"].held for results in ranks) == ranks[0]["adamw"].held


def test_several_ranks_may_save(ranks: Ranks, folder: Path) -> None:
    first, second = (torch.load(folder / f"saved by both{it}.pt", weights_only=True) for it in ("", "-1"))
    assert same(first, second) and first["optimizer"]["state"]


def test_a_rank_that_is_done_still_gives_its_share(ranks: Ranks, folder: Path) -> None:
    saved = torch.load(folder / "last-end.pt", weights_only=True)
    assert list(saved["optimizer"]["state"]) == ranks[0]["adamw"].keys


def test_an_optimizer_that_mixes_weights_is_left_alone(ranks: Ranks) -> None:
    for results in ranks:
        assert any("LBFGS may not update each weight independently" in it for it in results["lbfgs"].notes)


# -- dividing and sending --------------------------------------------------------------------------------


def test_weights_are_divided_by_bytes() -> None:
    assert owners([1, 8, 3, 4, 2], 2) == [0, 0, 1, 1, 1]
    for ranks in (1, 2, 3, 7):
        found = owners([5] * 7, ranks)
        assert max(found.count(it) for it in range(ranks)) - min(found.count(it) for it in range(ranks)) <= 1


def test_buckets_have_one_format_and_a_largest_size() -> None:
    large = torch.empty(BUCKET_BYTES // 4 + 1)
    small = [torch.empty(3), torch.empty(2, dtype=torch.float64), torch.empty(4)]
    found = buckets([small[0], large, small[1], small[2]])
    assert [[it.numel() for it in bucket] for bucket in found] == [[3], [BUCKET_BYTES // 4 + 1], [2], [4]]


# -- when it applies -------------------------------------------------------------------------------------

WRAPPER = DataParallelFacts(backend="gloo", processes=4, gradient_bytes=1 << 20)
ADAMW = OptimizerFacts(kind="AdamW", parameters=1, learning_rate=0.1, state_bytes=1 << 21)


def situation(wrapper: DataParallelFacts = WRAPPER, **facts: object) -> Situation:
    made = {"processes": 4, "optimizers": (ADAMW,), "data_parallel": (wrapper,)} | facts
    account = PhaseAccount(wall=0.1, phases=(("forward", 0.03), ("backward", 0.05), ("optimizer", 0.02)))
    return Situation(facts=ScriptFacts(**made), account=account)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (situation(processes=1), "One process trains"),
        (situation(optimizers=()), "no optimizer"),
        (situation(optimizers=(msgspec.structs.replace(ADAMW, kind="LBFGS"),)), "LBFGS may not update"),
        (situation(optimizers=(msgspec.structs.replace(ADAMW, from_torch=False),)), "may not update"),
        (situation(optimizers=(msgspec.structs.replace(ADAMW, kind="SGD", state_bytes=0),)), "SGD keeps no state"),
        (situation(msgspec.structs.replace(WRAPPER, processes=2)), "only some of the processes"),
    ],
)
def test_why_it_does_not_apply(facts: Situation, reason: str) -> None:
    refused = find("sharded-optimizer").obstacle(facts)
    assert refused is not None and reason in refused.reason


def test_it_applies_where_there_is_state_to_share() -> None:
    lever = find("sharded-optimizer")
    assert lever.obstacle(situation()) is None
    assert lever.obstacle(situation(optimizers=(msgspec.structs.replace(ADAMW, state_bytes=None),))) is None
    assert lever.bound(situation()) == pytest.approx(0.1 / 0.085)


def test_state_that_is_hardly_any_memory_is_shared_for_speed_alone() -> None:
    """1.5 of 2 MB, of 1,000 MB on each of four processes."""
    lever, little = find("sharded-optimizer"), msgspec.structs.replace(situation(), host_peak_bytes=4000 << 20)
    assert lever.obstacle(little) is None
    slow = msgspec.structs.replace(little, account=PhaseAccount(wall=1.0, phases=(("optimizer", 0.01),)))
    refused = lever.obstacle(slow)
    assert refused is not None and refused.reason == "It could save 1.5 MiB per process at most, of 1,000 MiB."
    assert lever.obstacle(msgspec.structs.replace(slow, host_peak_bytes=400 << 20)) is None
