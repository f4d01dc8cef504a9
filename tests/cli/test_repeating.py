"""The commands to type next keep the options that were given: each option of a parser is decided about here."""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path

import pytest
from fake_executor import FakeExecutor

from hotlap.api import Engine
from hotlap.cli.arguments import Parser
from hotlap.cli.main import main
from hotlap.cli.repeating import NOT_REPEATED, repeated_options

# How each kept option is typed, by command. A new option belongs here, or with a reason into NOT_REPEATED.
TUNE: dict[str, tuple[str, ...]] = {
    "accept_unverified": ("--accept-unverified",),
    "address": ("--address", "ray://head:10001"),
    "allow": ("--allow", "batch-size"),
    "batch_flag": ("--batch-flag=--batch-size",),
    "block_limit": ("--block-limit", "90s"),
    "delta": ("--delta", "2%"),
    "executor": ("--executor", "ray"),
    "goal": ("--goal", "memory"),
    "network": ("--network", "none"),
    "nodes": ("--nodes", "2"),
    "only": ("--only", "compile,huge-pages"),
    "parity_steps": ("--parity-steps", "100"),
    "plan_out": ("--plan-out", "my plan.toml"),
    "price": ("--price", "2.50EUR"),
    "rounds": ("--rounds", "9"),
    "sample_cache": ("--sample-cache", "20GB"),
    "samples": ("--samples", "90M"),
    "seed": ("--seed", "3"),
    "skip": ("--skip", "compile"),
    "slowdown": ("--slowdown", "1.3"),
    "slurm": ("--slurm", "partition=gpu", "--slurm=account=a b"),
    "startup_limit": ("--startup-limit", "5m"),
    "study": ("--study", "elsewhere"),
    "unprotected": ("--unprotected",),
}
_ALL = {"block_limit", "network", "price", "rounds", "samples", "seed", "startup_limit", "study", "unprotected"}
_SEARCH = {"accept_unverified", "delta"}
INFER = {it: TUNE[it] for it in (*_ALL, *_SEARCH, "allow", "goal", "only", "skip", "slowdown")} | {
    "p99": ("--p99", "20ms"),
    "quality": ("--quality", "0.95"),
}
PROFILE = {it: TUNE[it] for it in _ALL} | {"batch_sizes": ("--batch-sizes",)}
LAB = {it: TUNE[it] for it in (*_ALL, *_SEARCH, "parity_steps", "plan_out")}
KEPT = {"tune": TUNE, "infer": INFER, "profile": PROFILE, "lab": LAB}
AGAIN = {"lab": "tune"}
"""Commands whose studies another command continues."""


def parser_of(command: str) -> Parser:
    made: Parser = importlib.import_module(f"hotlap.cli.{command}").parser()
    return made


@pytest.mark.parametrize("command", KEPT)
def test_every_option_is_kept_or_left_out_with_a_reason(command: str) -> None:
    options = {it.dest for it in parser_of(command)._actions if it.option_strings}
    assert options - set(NOT_REPEATED) == set(KEPT[command])
    assert all(NOT_REPEATED.values())


@pytest.mark.parametrize("command", KEPT)
def test_what_is_kept_says_the_same_when_it_is_typed_again(command: str) -> None:
    made, again = parser_of(command), parser_of(AGAIN.get(command, command))
    words = [word for it in KEPT[command].values() for word in it]
    assert repeated_options(made, words) == tuple(words)
    first, second = vars(made.parse_args(words)), vars(again.parse_args(words))
    for name in KEPT[command]:
        assert first[name] != made.get_default(name), f"give {name} another value than its default"
        assert second[name] == first[name]


def test_what_is_left_out_takes_its_value_with_it() -> None:
    words = ["--budget", "10m", "--quick", "--seed=3", "--json", "--python", "env", "--delta", "2%"]
    assert repeated_options(parser_of("tune"), words) == ("--seed=3", "--delta", "2%")
    model = ["serve:make_model", "--inputs", "serve:make_inputs", "--seed", "3"]
    assert repeated_options(parser_of("infer"), model) == ("--seed", "3")


def test_the_printed_command_can_be_typed(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--delta", "2%", "--seed", "3", "--rounds", "9", "--sample-cache", "20GB", "--plan-out", "my plan.toml"]
    given += ["--only", "compile,huge-pages"]
    engine = Engine(executor=lambda directory, isolation: FakeExecutor())
    assert main(["tune", "--quiet", "--quick", *given, "train.py", "--epochs", "1"], engine=engine) == 0
    shown = capsys.readouterr().out.replace("\\\n", " ")
    (command,) = [line.split("#")[0] for line in shown.splitlines() if line.strip().startswith("hotlap tune")]
    again, script = parser_of("tune").split(shlex.split(command)[2:])
    assert script == ["train.py", "--epochs", "1"]
    budget = again.index("--budget")
    assert again[:budget] == given and len(again) == budget + 2


@pytest.mark.parametrize("command", ["profile", "memory", "batch"])
def test_another_command_is_given_how_the_script_can_be_run(
    command: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    carried = ["--network", "none", "--startup-limit=5m", "--study", "else where", "--unprotected"]
    engine = Engine(executor=lambda directory, isolation: FakeExecutor())
    assert main([command, "--quiet", "--seed", "3", *carried, "train.py", "--epochs", "1"], engine=engine) == 0
    shown = capsys.readouterr().out.replace("\\\n", " ")
    commands = [line.split("#")[0] for line in shown.splitlines() if line.strip().startswith("hotlap tune")]
    assert commands, shown
    for it in commands:
        again, script = parser_of("tune").split(shlex.split(it)[2:])
        assert script == ["train.py", "--epochs", "1"]
        typed = [word for word in again if word not in ("--goal", "memory")]
        assert typed[: len(carried)] == carried and "--seed" not in again
