"""Options of scripts that use FSDP themselves, on two real ranks: the same numbers, and the facts about them."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from two_ranks import on_ranks

sys.path.insert(0, str(Path(__file__).parent))

from own_sharding_on_ranks import Job, Result

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import (
    Accelerator,
    Machine,
    ModelFacts,
    OptimizerFacts,
    PhaseAccount,
    ScriptFacts,
    Setting,
    ShardedFacts,
    Situation,
)

PROGRAM = Path(__file__).with_name("own_sharding_on_ranks.py")


def ahead(value: str) -> Setting:
    return make_setting("sharded-prefetch", ahead=value)


def reshard(value: bool) -> Setting:
    return make_setting("reshard-after-forward", reshard=value)


def strategy(value: str) -> Setting:
    return make_setting("sharding-strategy", strategy=value)


REPLICATED = make_setting("replicated-weights")
HALF = make_setting("sharded-precision", param_dtype="bfloat16")
JOBS = {
    "fsdp1": Job(interface="fsdp1"),
    "fsdp1 forward": Job(interface="fsdp1", setting=ahead("forward")),
    "fsdp1 backward": Job(interface="fsdp1", setting=ahead("backward")),
    "fsdp1 unlimited": Job(interface="fsdp1", setting=ahead("unlimited")),
    "fsdp2": Job(interface="fsdp2"),
    "fsdp2 forward": Job(interface="fsdp2", setting=ahead("forward")),
    "fsdp2 kept": Job(interface="fsdp2", setting=reshard(False)),
    "fsdp2 given up": Job(interface="fsdp2", setting=reshard(True), reshards=False),
    "fsdp1 until backward": Job(interface="fsdp1", setting=strategy("SHARD_GRAD_OP")),
    "policy": Job(interface="fsdp1", by_policy=True),
    "policy until backward": Job(interface="fsdp1", by_policy=True, setting=strategy("SHARD_GRAD_OP")),
}
ROUNDING = {
    "fsdp1": Job(interface="fsdp1"),
    "fsdp1 whole": Job(interface="fsdp1", setting=strategy("NO_SHARD")),
    "fsdp2": Job(interface="fsdp2", clips=True),
    "fsdp2 whole": Job(interface="fsdp2", clips=True, setting=REPLICATED),
    "fsdp1 half": Job(interface="fsdp1", setting=HALF),
    "fsdp2 half": Job(interface="fsdp2", clips=True, setting=HALF),
    "mesh": Job(interface="fsdp2", clips=True, by_mesh=True),
    "mesh whole": Job(interface="fsdp2", clips=True, by_mesh=True, setting=REPLICATED, reshards=False),
}


def results_of(jobs: dict[str, Job], folder: Path) -> list[dict[str, Result]]:
    found = on_ranks(PROGRAM, msgspec.json.encode(jobs), folder)
    return [msgspec.json.decode(it, type=dict[str, Result]) for it in found]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Result]]:
    return results_of(JOBS, tmp_path_factory.mktemp("fsdp"))


@pytest.fixture(scope="module")
def rounding(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Result]]:
    """Levers after which gradients are added up otherwise, and checkpoints between runs with one and without."""
    folder = tmp_path_factory.mktemp("rounding")
    with_lever, without = str(folder / "with"), str(folder / "without")
    jobs = ROUNDING | {
        "save with": Job(interface="fsdp2", setting=REPLICATED, saves=with_lever),
        "save without": Job(interface="fsdp2", saves=without),
        "load without": Job(interface="fsdp2", loads=with_lever, steps=0),
        "load with": Job(interface="fsdp2", setting=REPLICATED, loads=without, steps=0),
    }
    return results_of(jobs, folder)


def test_a_model_that_is_whole_on_each_rank_trains_to_the_same_weights(rounding: list[dict[str, Result]]) -> None:
    for results in rounding:
        for name in ("fsdp1", "fsdp2", "mesh"):
            found, expected = results[f"{name} whole"], results[name]
            assert found.losses == pytest.approx(expected.losses, rel=1e-5)
            assert found.weights == pytest.approx(expected.weights, rel=1e-4, abs=1e-6)
            assert not found.notes
            assert found.held == len(found.weights) > expected.held
    assert rounding[0]["fsdp2 whole"].weights == rounding[1]["fsdp2 whole"].weights
    assert rounding[0]["fsdp2 whole"].facts[0].mesh == (2, 1)
    assert rounding[0]["mesh"].facts[0].mesh == (2,)
    assert rounding[0]["fsdp1 whole"].facts[0].strategy == "NO_SHARD"


@pytest.mark.parametrize("name", ["fsdp1", "fsdp2"])
def test_weights_are_gathered_in_sixteen_bits_and_updated_in_thirty_two(
    rounding: list[dict[str, Result]], name: str
) -> None:
    """The model computes in bfloat16, and the script is given float32 and keeps its weights in it."""
    for results in rounding:
        found, expected = results[f"{name} half"], results[name]
        assert found.losses != expected.losses
        assert found.losses == pytest.approx(expected.losses, rel=0.2)
        assert found.facts[0].param_dtype == "bfloat16" and not expected.facts[0].param_dtype
        assert found.formats == ["given torch.float32", "torch.bfloat16", "torch.float32"]
        assert expected.formats == ["given torch.float32", "torch.float32"]


def test_distributed_checkpoints_load_with_and_without_the_lever(rounding: list[dict[str, Result]]) -> None:
    for results in rounding:
        assert results["load without"].weights == results["save with"].weights
        assert results["load with"].weights == results["save without"].weights


@pytest.mark.slow
@pytest.mark.parametrize("name", [it for it in JOBS if " " in it])
def test_the_numbers_are_the_same_to_the_last_bit(ranks: list[dict[str, Result]], name: str) -> None:
    for results in ranks:
        found, expected = results[name], results[name.partition(" ")[0]]
        assert found.losses == expected.losses
        assert found.weights == expected.weights
        assert not found.notes
    assert ranks[0][name].weights == ranks[1][name].weights


@pytest.mark.slow
def test_facts_show_what_was_set(ranks: list[dict[str, Result]]) -> None:
    facts = {name: it.facts[0] for name, it in ranks[0].items()}
    first = ShardedFacts(
        api="fsdp1",
        units=4,
        processes=2,
        backward_prefetch="BACKWARD_POST",
        strategy="FULL_SHARD",
        use_orig_params=True,
    )
    assert facts["fsdp1"] == first
    assert facts["fsdp1 forward"] == msgspec.structs.replace(first, forward_prefetch=True)
    assert facts["fsdp1 backward"] == msgspec.structs.replace(first, backward_prefetch="BACKWARD_PRE")
    assert facts["fsdp1 unlimited"] == msgspec.structs.replace(first, limit_all_gathers=False)
    assert facts["fsdp1 until backward"] == msgspec.structs.replace(first, strategy="SHARD_GRAD_OP")
    assert facts["policy until backward"].strategy == "SHARD_GRAD_OP" and facts["policy until backward"].units == 4
    second = ShardedFacts(api="fsdp2", units=4, processes=2, reshards=True, mesh=(2,))
    assert facts["fsdp2"] == facts["fsdp2 given up"] == second
    assert facts["fsdp2 kept"] == msgspec.structs.replace(second, reshards=False)


@pytest.mark.slow
def test_each_unit_but_the_last_gathers_the_next_ones_weights(ranks: list[dict[str, Result]]) -> None:
    assert ranks[0]["fsdp2 forward"].ahead == [False, True, True, False]
    assert not any(ranks[0]["fsdp2"].ahead)


# -- when they apply -------------------------------------------------------------------------------------

SECOND = ShardedFacts(api="fsdp2", units=3, processes=2, reshards=True)
FIRST = ShardedFacts(api="fsdp1", units=3, processes=2, backward_prefetch="BACKWARD_PRE", strategy="FULL_SHARD")
HYBRID = msgspec.structs.replace(FIRST, strategy="HYBRID_SHARD")


def situation(*sharded: ShardedFacts, device: str = "cuda:0") -> Situation:
    facts = ScriptFacts(processes=2, device=device, models=(ModelFacts(kind="Net", parameters=1),), sharded=sharded)
    account = PhaseAccount(wall=0.1, phases=(("forward", 0.03), ("backward", 0.05), ("optimizer", 0.02)))
    return Situation(facts=facts, account=account)


@pytest.mark.parametrize(
    ("name", "facts", "reason"),
    [
        ("reshard-after-forward", Situation(), "One process trains"),
        ("sharded-prefetch", Situation(), "One process trains"),
        ("reshard-after-forward", situation(), "does not share weights"),
        ("reshard-after-forward", situation(FIRST), "uses FSDP1"),
        ("reshard-after-forward", situation(msgspec.structs.replace(SECOND, reshards=None)), "one unit"),
        ("sharded-prefetch", situation(SECOND, device="cpu"), "On the processor"),
        ("sharded-prefetch", situation(msgspec.structs.replace(SECOND, units=1)), "one unit"),
        ("replicated-weights", Situation(), "One process trains"),
        ("replicated-weights", situation(FIRST), "`sharding-strategy`"),
        ("replicated-weights", situation(msgspec.structs.replace(SECOND, mesh=(1, 2))), "several dimensions"),
        ("replicated-weights", situation(msgspec.structs.replace(SECOND, mesh=(1,))), "some of the processes"),
        ("replicated-weights", situation(msgspec.structs.replace(SECOND, offloads=True)), "host memory"),
        ("sharded-precision", situation(), "does not share weights"),
        ("sharded-precision", situation(msgspec.structs.replace(SECOND, param_dtype="bfloat16")), "sets a policy"),
        ("sharded-precision", situation(SECOND), "natively"),
        ("sharding-strategy", situation(SECOND), "uses FSDP2"),
        ("sharding-strategy", situation(HYBRID), "hybrid"),
        ("sharding-strategy", situation(msgspec.structs.replace(FIRST, offloads=True)), "host memory"),
    ],
)
def test_why_they_do_not_apply(name: str, facts: Situation, reason: str) -> None:
    refused = find(name).obstacle(facts)
    assert refused is not None and reason in refused.reason


@pytest.mark.parametrize(
    ("name", "facts", "settings"),
    [
        ("reshard-after-forward", SECOND, [reshard(False)]),
        ("reshard-after-forward", msgspec.structs.replace(SECOND, reshards=False), [reshard(True)]),
        ("sharded-prefetch", SECOND, [ahead("forward")]),
        ("replicated-weights", SECOND, [REPLICATED]),
        ("sharding-strategy", FIRST, [strategy("SHARD_GRAD_OP"), strategy("NO_SHARD")]),
        ("sharding-strategy", msgspec.structs.replace(FIRST, strategy="NO_SHARD"),
         [strategy("SHARD_GRAD_OP"), strategy("FULL_SHARD")]),
        ("sharded-prefetch", FIRST, [ahead("forward"), ahead("unlimited")]),
        ("sharded-prefetch", msgspec.structs.replace(FIRST, backward_prefetch=""),
         [ahead("forward"), ahead("backward"), ahead("unlimited")]),
    ],
)  # fmt: skip
def test_what_the_script_does_not_do_yet_is_tried(name: str, facts: ShardedFacts, settings: list[Setting]) -> None:
    lever = find(name)
    assert lever.obstacle(situation(facts)) is None
    assert list(lever.candidates(situation(facts))) == settings
    bound = lever.bound(situation(facts))
    assert bound is not None and bound >= 2.0 - 1e-9


def in_memory(facts: ShardedFacts, parameter_bytes: int, room_bytes: int) -> Situation:
    """Two processes with a share of the weights and of AdamW's state each, next to 100 bytes of other tensors."""
    given = situation(facts)
    model = msgspec.structs.replace(given.facts.models[0], parameter_bytes=parameter_bytes)
    optimizer = OptimizerFacts(kind="AdamW", parameters=1, learning_rate=0.1, state_bytes=parameter_bytes)
    machine = Machine(accelerators=(Accelerator(kind="cuda", name="A", memory_bytes=room_bytes),))
    return msgspec.structs.replace(
        given,
        facts=msgspec.structs.replace(given.facts, models=(model,), optimizers=(optimizer,)),
        machine=machine,
        device_peak_bytes=100 + 2 * parameter_bytes,
    )


def test_a_model_that_does_not_fit_stays_divided() -> None:
    """Whole, a process would hold twice as much of 1,000 bytes of weights, gradients and state: 2,000 bytes more."""
    for room, fits in ((5000, True), (4000, False)):
        refused = find("replicated-weights").obstacle(in_memory(SECOND, 1000, room))
        assert (refused is None) == fits
        assert refused is None or refused.reason.startswith("The whole model does not fit")
        tried = find("sharding-strategy").candidates(in_memory(FIRST, 1000, room))
        assert tried == ((strategy("SHARD_GRAD_OP"), strategy("NO_SHARD")) if fits else (strategy("SHARD_GRAD_OP"),))


def test_bfloat16_is_tried_where_the_hardware_has_it() -> None:
    machine = Machine(accelerators=(Accelerator(kind="cuda", name="A", memory_bytes=1, native_dtypes=("bfloat16",)),))
    facts = msgspec.structs.replace(situation(SECOND), machine=machine)
    assert find("sharded-precision").obstacle(facts) is None
    assert find("sharded-precision").candidates(facts) == (HALF,)


def test_gradients_of_a_whole_model_are_rounded_otherwise() -> None:
    lever = find("sharding-strategy")
    assert lever.proof_for(situation(FIRST), strategy("SHARD_GRAD_OP")) == "exact"
    assert lever.proof_for(situation(FIRST), strategy("NO_SHARD")) == "rounding"
    whole = msgspec.structs.replace(FIRST, strategy="NO_SHARD")
    assert lever.proof_for(situation(whole), strategy("FULL_SHARD")) == "rounding"
