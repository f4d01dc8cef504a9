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
from hotlap.records import ModelFacts, PhaseAccount, ScriptFacts, Setting, ShardedFacts, Situation

PROGRAM = Path(__file__).with_name("own_sharding_on_ranks.py")


def ahead(value: str) -> Setting:
    return make_setting("sharded-prefetch", ahead=value)


def reshard(value: bool) -> Setting:
    return make_setting("reshard-after-forward", reshard=value)


JOBS = {
    "fsdp1": Job(interface="fsdp1"),
    "fsdp1 forward": Job(interface="fsdp1", setting=ahead("forward")),
    "fsdp1 backward": Job(interface="fsdp1", setting=ahead("backward")),
    "fsdp1 unlimited": Job(interface="fsdp1", setting=ahead("unlimited")),
    "fsdp2": Job(interface="fsdp2"),
    "fsdp2 forward": Job(interface="fsdp2", setting=ahead("forward")),
    "fsdp2 kept": Job(interface="fsdp2", setting=reshard(False)),
    "fsdp2 given up": Job(interface="fsdp2", setting=reshard(True), reshards=False),
}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Result]]:
    found = on_ranks(PROGRAM, msgspec.json.encode(JOBS), tmp_path_factory.mktemp("fsdp"))
    return [msgspec.json.decode(it, type=dict[str, Result]) for it in found]


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
    first = ShardedFacts(api="fsdp1", units=4, processes=2, backward_prefetch="BACKWARD_POST")
    assert facts["fsdp1"] == first
    assert facts["fsdp1 forward"] == msgspec.structs.replace(first, forward_prefetch=True)
    assert facts["fsdp1 backward"] == msgspec.structs.replace(first, backward_prefetch="BACKWARD_PRE")
    assert facts["fsdp1 unlimited"] == msgspec.structs.replace(first, limit_all_gathers=False)
    second = ShardedFacts(api="fsdp2", units=4, processes=2, reshards=True)
    assert facts["fsdp2"] == facts["fsdp2 given up"] == second
    assert facts["fsdp2 kept"] == msgspec.structs.replace(second, reshards=False)


@pytest.mark.slow
def test_each_unit_but_the_last_gathers_the_next_ones_weights(ranks: list[dict[str, Result]]) -> None:
    assert ranks[0]["fsdp2 forward"].ahead == [False, True, True, False]
    assert not any(ranks[0]["fsdp2"].ahead)


# -- when they apply -------------------------------------------------------------------------------------

SECOND = ShardedFacts(api="fsdp2", units=3, processes=2, reshards=True)
FIRST = ShardedFacts(api="fsdp1", units=3, processes=2, backward_prefetch="BACKWARD_PRE")


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
