"""The stage of ZeRO that a script of DeepSpeed uses: on two real ranks where DeepSpeed is installed; its configuration
by a stand-in with the documented arguments of ``deepspeed.initialize``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from two_ranks import on_ranks

sys.path.insert(0, str(Path(__file__).parent))

from deepspeed_on_ranks import Job, Result

from hotlap.errors import ScriptError
from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import DeepSpeedFacts, PhaseAccount, ScriptFacts, Setting, Situation
from hotlap.runtime.deepspeed_facts import DeepSpeedWatch
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception

PROGRAM = Path(__file__).with_name("deepspeed_on_ranks.py")


def stage(value: int) -> Setting:
    return make_setting("deepspeed-zero", stage=value)


JOBS = {
    "0": Job(stage=0),
    **{f"0 to {it}": Job(stage=0, setting=stage(it), saves=True, reads_weights=True) for it in (1, 2, 3)},
    "2": Job(stage=2),
    "2 to 0": Job(stage=2, setting=stage(0), given_as="file"),
    "2 to 1": Job(stage=2, setting=stage(1), given_as="args"),
    "3": Job(stage=3),
    "3 to 2": Job(stage=3, setting=stage(2), saves=True),
}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Result]]:
    pytest.importorskip("deepspeed", reason="needs pip install deepspeed", exc_type=ImportError)
    folder = tmp_path_factory.mktemp("deepspeed")
    found = on_ranks(PROGRAM, msgspec.json.encode(JOBS), folder, 2, str(folder))
    return [msgspec.json.decode(it, type=dict[str, Result]) for it in found]


@pytest.mark.slow
@pytest.mark.parametrize("name", [it for it in JOBS if " to " in it])
def test_every_stage_trains_to_the_same_losses(ranks: list[dict[str, Result]], name: str) -> None:
    before, _, wanted = name.partition(" to ")
    for results in ranks:
        found, expected = results[name], results[before]
        assert found.losses == pytest.approx(expected.losses, rel=1e-4)
        assert (found.stage, expected.stage) == (int(wanted), int(before))
        assert found.facts == (DeepSpeedFacts(stage=int(wanted), processes=2),)
        assert not found.notes


@pytest.mark.slow
@pytest.mark.parametrize("name", [it for it in JOBS if it != "0"])
def test_whole_gradients_are_the_same_however_they_are_divided(ranks: list[dict[str, Result]], name: str) -> None:
    expected = ranks[0]["0"].gradients
    assert sum(map(len, expected.values())) == 3 * (9 * 9 + 9) + 9 + 1
    for results in ranks:
        found = results[name].gradients
        assert found.keys() == expected.keys()
        for key, values in expected.items():
            assert found[key] == pytest.approx(values, rel=1e-4, abs=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, it in JOBS.items() if it.saves])
def test_a_checkpoint_of_the_engine_loads(ranks: list[dict[str, Result]], name: str) -> None:
    for results in ranks:
        trained_on, loaded = results[name].loaded
        assert loaded == pytest.approx(trained_on, rel=1e-5)


@pytest.mark.slow
def test_parts_of_weights_are_not_saved_as_if_they_were_whole(ranks: list[dict[str, Result]]) -> None:
    for results in ranks:
        assert "save_16bit_model" in results["0 to 3"].error
        assert not results["0 to 2"].error


# -- the configuration, without DeepSpeed ----------------------------------------------------------------


class Engine:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def zero_optimization_stage(self) -> int:
        found: int = self.config.get("zero_optimization", {}).get("stage", 0)
        return found


@pytest.fixture
def deepspeed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("deepspeed")

    def initialize(
        args: Any = None, model: Any = None, optimizer: Any = None, config: Any = None, config_params: Any = None
    ) -> tuple[Engine, Any, None, None]:
        given = config or config_params
        if getattr(args, "deepspeed_config", None) is not None:
            assert given is None, "DeepSpeed refuses two configurations"
            given = args.deepspeed_config
        return Engine(given if isinstance(given, dict) else json.loads(Path(given).read_text())), optimizer, None, None

    module.initialize = initialize  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "deepspeed", module)
    return module


@pytest.fixture
def hooks(deepspeed: ModuleType) -> Iterator[Hooks]:
    interception = Interception(Hooks(torch=torch))
    interception.install()
    yield interception.hooks
    interception.suspend()


CONFIG = {"train_batch_size": 8, "zero_optimization": {"stage": 3, "overlap_comm": True}}


@pytest.mark.parametrize("how", ["config", "config_params", "file", "args"])
def test_only_the_stage_changes_and_nothing_of_the_scripts(
    deepspeed: ModuleType, hooks: Hooks, tmp_path: Path, how: str
) -> None:
    watch = DeepSpeedWatch(hooks)
    file = tmp_path / "deepspeed.json"
    file.write_text(json.dumps(CONFIG))
    given: dict[str, Any] = {"config": str(file)} if how == "file" else {how: json.loads(file.read_text())}
    if how == "args":
        given = {"args": SimpleNamespace(deepspeed_config=str(file))}
    kept = json.dumps(given.get(how)) if how.startswith("config") else ""
    find("deepspeed-zero").install(hooks, stage(1))
    engine, *_ = deepspeed.initialize(model=torch.nn.Linear(2, 1), **given)
    assert engine.config == CONFIG | {"zero_optimization": {"stage": 1, "overlap_comm": True}}
    assert json.loads(file.read_text()) == CONFIG
    assert not kept or json.dumps(given[how]) == kept
    assert watch.facts() == (DeepSpeedFacts(stage=1),)


def test_a_model_whose_weights_are_divided_from_the_start_keeps_its_stage(deepspeed: ModuleType, hooks: Hooks) -> None:
    model = torch.nn.Linear(2, 1)
    model.weight.ds_id = 0  # type: ignore[attr-defined]
    find("deepspeed-zero").install(hooks, stage(1))
    engine, *_ = deepspeed.initialize(model=model, config=CONFIG)
    assert engine.config == CONFIG
    assert any("deepspeed.zero.Init" in it for it in hooks.notes)


def test_a_configuration_that_cannot_be_read_is_an_error(deepspeed: ModuleType, hooks: Hooks) -> None:
    find("deepspeed-zero").install(hooks, stage(1))
    with pytest.raises(ScriptError, match="configuration of DeepSpeed"):
        deepspeed.initialize(model=torch.nn.Linear(2, 1), config="eyJ0cmFpbl9iYXRjaF9zaXplIjogOH0=")


# -- when it applies -------------------------------------------------------------------------------------


def situation(*engines: DeepSpeedFacts, processes: int = 2) -> Situation:
    account = PhaseAccount(wall=0.1, phases=(("data_wait", 0.02), ("forward", 0.03), ("backward", 0.05)))
    return Situation(facts=ScriptFacts(processes=processes, deepspeed=engines), account=account)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (situation(), "does not use DeepSpeed"),
        (situation(DeepSpeedFacts(stage=2), processes=1), "One process trains"),
        (situation(DeepSpeedFacts(), DeepSpeedFacts()), "several engines"),
        (situation(DeepSpeedFacts(stage=1, pipeline=True)), "pipeline"),
        (situation(DeepSpeedFacts(stage=2, offloads=True)), "host memory"),
    ],
)
def test_why_it_does_not_apply(facts: Situation, reason: str) -> None:
    refused = find("deepspeed-zero").obstacle(facts)
    assert refused is not None and reason in refused.reason


@pytest.mark.parametrize(("used", "tried"), [(0, [1, 2, 3]), (1, [2, 0, 3]), (3, [1, 2, 0])])
def test_the_other_stages_are_tried(used: int, tried: list[int]) -> None:
    lever = find("deepspeed-zero")
    facts = situation(DeepSpeedFacts(stage=used, processes=2))
    assert lever.obstacle(facts) is None
    assert list(lever.candidates(facts)) == [stage(it) for it in tried]
    assert lever.bound(facts) == pytest.approx(5.0)
