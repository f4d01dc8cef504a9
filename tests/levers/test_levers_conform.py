"""What holds for every lever of the folder, this one and the next."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hotlap.errors import PlanError
from hotlap.experiment.goal import known_metrics
from hotlap.levers.api import Lever, Parameter, all_levers, find, inference_levers, validate
from hotlap.plan import from_toml, to_toml
from hotlap.records import (
    Accelerator,
    BlockFacts,
    LoaderFacts,
    Machine,
    ModelFacts,
    OptimizerFacts,
    PhaseAccount,
    Plan,
    RepeatedModules,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    Value,
)

EXPECTED = {
    "accumulation",
    "activation-checkpointing",
    "attention-kernel",
    "batch-size",
    "channels-last",
    "compile",
    "cpu-threads",
    "cudnn-benchmark",
    "deepspeed-zero",
    "device-prefetch",
    "drop-used-gradients",
    "eight-bit-optimizer",
    "evaluation-loader",
    "evaluation-precision",
    "evaluation-without-graph",
    "expandable-segments",
    "float8-linear",
    "fully-sharded",
    "fused-optimizer",
    "garbage-collection",
    "gradient-bucket-view",
    "gradient-buckets",
    "gradient-compression",
    "huge-pages",
    "keep-freed-memory",
    "larger-micro-batches",
    "liger-kernels",
    "loader",
    "matmul-precision",
    "memory-allocator",
    "mixed-precision",
    "no-sync",
    "optimizer-in-backward",
    "pinned-threads",
    "replicated-weights",
    "reshard-after-forward",
    "sdpa-attention",
    "sharded-optimizer",
    "sharded-precision",
    "sharded-prefetch",
    "sharding-strategy",
    "static-graph",
    "zero-grad-to-none",
}
SECTIONS = ("What it does", "When it helps", "What it costs", "Before", "After", "What is proved")
SOURCE = Path(__file__).parents[2] / "src"

ACCOUNT = PhaseAccount(
    wall=0.1,
    phases=(
        ("data_wait", 0.02),
        ("host_to_device", 0.01),
        ("forward", 0.02),
        ("backward", 0.03),
        ("optimizer", 0.01),
        ("other", 0.01),
    ),
)
CPU = Situation(
    facts=ScriptFacts(
        device="cpu",
        threads=4,
        loaders=(LoaderFacts(dataset="Images", batch_size=32, length=1000, batch_bytes=10_000),),
        optimizers=(
            OptimizerFacts(kind="AdamW", parameters=4, learning_rate=0.1, supports_fused=True, supports_foreach=True),
        ),
        models=(
            ModelFacts(
                kind="Net",
                parameters=10,
                convolutions=2,
                input_shapes=((32, 3, 8, 8),),
                attention="eager",
                blocks=BlockFacts(kind="Block", count=4, place=".blocks"),
                repeated=(RepeatedModules(kind="Block", count=4, place=".blocks"),),
                outputs_by_sample=True,
            ),
        ),
    ),
    machine=Machine(
        cores=2,
        physical_cores=2,
        native_dtypes=("float32", "bfloat16"),
        shared_memory_bytes=1 << 30,
        allocators=("jemalloc", "tcmalloc"),
    ),
    account=ACCOUNT,
)
GPU = Situation(
    facts=ScriptFacts(
        device="cuda:0", loaders=CPU.facts.loaders, optimizers=CPU.facts.optimizers, models=CPU.facts.models
    ),
    machine=Machine(
        cores=8,
        physical_cores=4,
        accelerators=(
            Accelerator(
                kind="cuda",
                name="A",
                memory_bytes=1,
                capability="9.0",
                native_dtypes=("float32", "float16", "bfloat16"),
            ),
        ),
    ),
    account=ACCOUNT,
)
SITUATIONS = {"empty": Situation(), "cpu": CPU, "gpu": GPU}

EVERY = {**all_levers(), **inference_levers()}
every_lever = pytest.mark.parametrize("lever", EVERY.values(), ids=lambda it: it.name)
every_situation = pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)


def test_the_first_levers_exist() -> None:
    assert set(all_levers()) >= EXPECTED


@every_lever
def test_the_page_has_its_sections_in_order(lever: Lever) -> None:
    headings = [line.removeprefix("## ") for line in lever.page.splitlines() if line.startswith("## ")]
    assert tuple(headings) == SECTIONS
    bodies = lever.page.split("\n## ")[1:]
    assert all(len(body.splitlines()) >= 2 and body.splitlines()[1].strip() for body in bodies)


@every_lever
def test_the_page_says_which_proof_the_lever_needs(lever: Lever) -> None:
    assert f"`{lever.proof}`" in lever.page.split("## What is proved")[1]


@every_lever
def test_it_improves_metrics_that_exist(lever: Lever) -> None:
    assert lever.improves and set(lever.improves) <= set(known_metrics())


@every_lever
def test_names_are_as_people_type_them(lever: Lever) -> None:
    assert find(lever.name).name == lever.name
    assert lever.name == lever.name.lower().replace("_", "-")
    assert lever.title and not lever.title.endswith(".")
    assert all(isinstance(it, str) and it for it in lever.addresses)
    assert lever.addresses or lever.name not in EXPECTED, "each lever that hotlap ships answers a finding"


def legal_value(parameter: Parameter) -> Value:
    if parameter.choices:
        return parameter.choices[-1]
    plain: dict[type, Value] = {bool: True, str: "text"}
    return plain[parameter.kind] if parameter.kind in (bool, str) else parameter.minimum or 0


@every_lever
def test_settings_survive_toml(lever: Lever) -> None:
    values = tuple(sorted((key, legal_value(it)) for key, it in lever.parameters.items()))
    plan = Plan(settings=(Setting(lever=lever.name, values=values),))
    assert from_toml(to_toml(plan)) == plan


@every_lever
def test_unknown_and_missing_keys_are_refused(lever: Lever) -> None:
    with pytest.raises(PlanError):
        validate(Setting(lever=lever.name, values=(("no-such-key", 1),)))
    if any(it.required for it in lever.parameters.values()):
        with pytest.raises(PlanError):
            validate(Setting(lever=lever.name))


@every_lever
@every_situation
def test_candidates_are_valid_sorted_and_distinct(lever: Lever, situation: Situation) -> None:
    candidates = lever.candidates(situation)
    assert len(set(candidates)) == len(candidates)
    for setting in candidates:
        validate(setting)
        assert setting.lever == lever.name
        assert list(setting.values) == sorted(setting.values)
        assert lever.proof_for(situation, setting) in ("exact", "rounding", "behaviour")
        assert all(isinstance(it, str) for pair in lever.environment(setting).items() for it in pair)


@every_lever
@every_situation
def test_an_obstacle_is_a_sentence_or_there_is_something_to_try(lever: Lever, situation: Situation) -> None:
    obstacle = lever.obstacle(situation)
    if obstacle is None:
        assert lever.candidates(situation)
    else:
        assert isinstance(obstacle, Skipped)
        assert obstacle.reason[0].isupper() and obstacle.reason.endswith(".")


@every_lever
@every_situation
def test_a_bound_is_a_finite_speedup_or_none(lever: Lever, situation: Situation) -> None:
    bound = lever.bound(situation)
    assert bound is None or (math.isfinite(bound) and bound >= 1.0)


@every_lever
def test_nothing_is_bounded_without_an_account(lever: Lever) -> None:
    assert lever.bound(Situation()) is None


@pytest.fixture(scope="module")
def installed() -> dict[str, list[str]]:
    """What each lever wrote when its settings were installed, in a process of its own: levers change torch for good."""
    settings = [it for lever in EVERY.values() for each in (CPU, GPU) for it in lever.candidates(each)]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("install_settings.py"))],
        input=msgspec.json.encode(settings),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(it for it in sys.path if it)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=dict[str, list[str]])


@every_lever
def test_installing_prints_nothing_and_needs_hooks_only(lever: Lever, installed: dict[str, list[str]]) -> None:
    expected = len([it for each in (CPU, GPU) for it in lever.candidates(each)])
    assert installed.get(lever.name, []) == [""] * expected


def test_importing_every_lever_does_not_import_torch() -> None:
    code = (
        "import sys; from hotlap.levers.api import all_levers; all_levers();"
        "heavy = {'torch', 'numpy', 'transformers'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(SOURCE)}, timeout=300)


@pytest.mark.parametrize(
    ("name", "keeps"),
    [
        ("huge-pages", True),
        ("pinned-threads", True),
        ("cpu-threads", False),
        ("fused-optimizer", True),
        ("cached-samples", True),
        ("length-bucketing", False),
        ("mixed-precision", False),
        ("activation-checkpointing", False),
    ],
)
def test_what_was_compiled_without_a_lever_can_be_loaded_with_it(name: str, keeps: bool) -> None:
    assert find(name).keeps_compiled_code is keeps
