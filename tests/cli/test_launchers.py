"""Workloads with launchers, as users type them, for every command that takes a workload."""

from __future__ import annotations

import sys
from pathlib import Path

import fakes
import msgspec
import pytest
from fake_executor import FakeExecutor

from hotlap.api import Engine
from hotlap.cli.main import main
from hotlap.cli.workload import workload_from
from hotlap.errors import UsageError
from hotlap.records import Workload
from hotlap.render.text import command
from hotlap.trial.command import command_of

LAUNCH, TORCHRUN = "accelerate.commands.launch", "torch.distributed.run"


@pytest.fixture(autouse=True)
def no_environment(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the virtual environment in which the tests run."""
    for name in ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT"):
        monkeypatch.delenv(name, raising=False)


def package(name: str) -> None:
    """Make a package importable, as if it were installed."""
    Path(name).mkdir()
    Path(name, "__init__.py").touch()


@pytest.mark.parametrize(
    ("words", "options", "target", "arguments"),
    [
        ("train.py --lr 1", "", "train.py", "--lr 1"),
        ("python -u train.py --lr 1", "-u", "train.py", "--lr 1"),
        ("python3 -uB train.py", "-uB", "train.py", ""),
        ("python -W ignore -X dev train.py -u", "-W ignore -X dev", "train.py", "-u"),
        ("python -Wignore -Xdev -- train.py", "-Wignore -Xdev", "train.py", ""),
        ("python -O -m train --lr 1", "-O", "-m train", "--lr 1"),
        ("torchrun --nproc-per-node 2 train.py", "", f"-m {TORCHRUN}", "--nproc-per-node 2 train.py"),
        ("accelerate launch --cpu train.py --lr 1", "", f"-m {LAUNCH}", "--cpu train.py --lr 1"),
        ("accelerate-launch -m train", "", f"-m {LAUNCH}", "-m train"),
        ("deepspeed --num_gpus 2 train.py --deepspeed", "", "-m deepspeed.launcher.runner",
         "--num_gpus 2 train.py --deepspeed"),
        ("fabric run --accelerator cpu train.py", "", "-m lightning.fabric.cli", "--accelerator cpu train.py"),
        ("uv run train.py --lr 1", "", "train.py", "--lr 1"),
        ("uv run --frozen -q -- train.py", "", "train.py", ""),
        ("uv run python -u train.py", "-u", "train.py", ""),
        ("uv run -m train --lr 1", "", "-m train", "--lr 1"),
        ("uv run accelerate launch train.py", "", f"-m {LAUNCH}", "train.py"),
        ("poetry run python train.py", "", "train.py", ""),
        ("poetry run torchrun --standalone train.py", "", f"-m {TORCHRUN}", "--standalone train.py"),
        ("pdm run train.py", "", "train.py", ""),
    ],
)  # fmt: skip
def test_launch_commands_are_understood_as_typed(words: str, options: str, target: str, arguments: str) -> None:
    for name in ("accelerate", "deepspeed", "lightning"):
        package(name)
    found = workload_from(words.split(), "tune")
    its = ["-m", found.target] if found.kind == "module" else [found.target]
    said = (" ".join(found.interpreter_options), " ".join(its), " ".join(found.arguments))
    assert said == (options, target, arguments)
    assert command_of(found) == [found.python, *found.interpreter_options, *its, *found.arguments]


@pytest.mark.parametrize(
    ("words", "says", "remedy"),
    [
        ("accelerate config", "Of accelerate only `accelerate launch` starts a script.", "accelerate launch train.py"),
        ("fabric train.py", "Of fabric only `fabric run`", "hotlap tune fabric run train.py"),
        ("srun -n 4 train.py", "hotlap does not support 'srun' as a launcher.", "(`srun ... hotlap tune train.py`)"),
        ("conda run -n torch python train.py", "'conda'", "conda ... hotlap tune train.py"),
        ("uv sync", "Only `uv run`", "`uv run hotlap tune ...`"),
        ("uv run --with rich train.py", "`uv run --with`: its effect on the environment", "`uv run hotlap tune ...`"),
        ("uv run", "has no script", "hotlap tune uv run train.py"),
        ("poetry install", "Only `poetry run`", "`poetry run hotlap tune ...`"),
        ("python -I train.py", "With `python -I` hotlap cannot be loaded", "Omit -I, -E and -S"),
        ("python -uE train.py", "With `python -uE`", "Omit"),
        ("python -c pass", "has no script", "into a file"),
        ("python --wrong train.py", "the option '--wrong' of Python", "pass the script"),
        ("python", "No script was given.", "hotlap tune train.py"),
        ("python -u", "No script was given.", "hotlap tune train.py"),
        ("python -m", "No script was given.", "hotlap tune train.py"),
    ],
)
def test_unsupported_launchers_are_refused_with_a_remedy(words: str, says: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        workload_from(words.split(), "tune")
    assert says in caught.value.what and remedy in caught.value.remedy


def test_a_launcher_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(UsageError, match="the package 'deepspeed' is not installed here") as caught:
        workload_from(["deepspeed", "train.py"], "tune")
    assert "Install deepspeed" in caught.value.remedy


def test_the_projects_environment_is_used(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = work / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (work / "deeper").mkdir()
    (work / "deeper" / "train.py").touch()
    monkeypatch.chdir(work / "deeper")
    for words in ("uv run train.py", "uv run python train.py", "poetry run python3 -u train.py"):
        assert workload_from(words.split(), "tune").python == str(python)
    assert workload_from(["train.py"], "tune").python == sys.executable


def test_a_launcher_given_by_path_uses_its_own_interpreter(work: Path) -> None:
    package("accelerate")
    folder = work / "env" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    (folder / "accelerate").touch(mode=0o755)
    found = workload_from(["env/bin/accelerate", "launch", "train.py"], "tune")
    assert (found.python, found.target) == (str(Path("env/bin/python")), LAUNCH)


def test_packages_of_another_interpreter_are_not_checked(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    python = work / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    found = workload_from(["uv", "run", "deepspeed", "train.py"], "tune")
    assert (found.python, found.target) == (str(python), "deepspeed.launcher.runner")


def test_a_script_named_like_a_launcher_is_a_script() -> None:
    for name in ("torchrun", "accelerate", "uv", "srun"):
        Path(name).touch()
        found = workload_from([name, "launch"], "tune")
        assert (found.kind, found.target, found.arguments) == ("script", name, ("launch",))


@pytest.mark.parametrize("name", ["tune", "profile", "lab"])
def test_commands_that_create_studies_accept_launchers(name: str) -> None:
    seen: list[Workload] = []

    def search(workload, options, journal, executor, on_progress):
        seen.append(workload)
        journal.save(fakes.FINISHED)
        return fakes.FINISHED

    made = Engine(lambda directory, isolation: FakeExecutor(), search=search, lab=search, profile=search)
    assert main([name, "--quiet", "python", "-u", "train.py", "--lr", "1"], engine=made) == 0
    assert (seen[0].interpreter_options, seen[0].target, seen[0].arguments) == (("-u",), "train.py", ("--lr", "1"))


@pytest.mark.parametrize("words", [["run", "--plan", "p.toml"], ["nan"], ["check", "--baseline", "main"]])
def test_other_commands_refuse_unsupported_launchers(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.toml").write_text("[hotlap]\nformat = 1\n")
    assert main([*words, "srun", "-n", "2", "train.py"]) == 2
    assert "does not support 'srun' as a launcher" in capsys.readouterr().err


def test_the_command_is_shown_as_it_was_typed() -> None:
    found = workload_from(["python", "-u", "train.py"], "tune")
    assert command(found) == "python -u train.py"
    assert command(msgspec.structs.replace(found, interpreter_options=())) == "train.py"


def test_a_report_names_torchrun_as_it_was_typed(work: Path) -> None:
    for typed in ("torchrun --standalone train.py", "python -u -m torch.distributed.run --standalone train.py"):
        assert command(workload_from(typed.split(), "tune")) == typed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("torchrun --nnodes 2 --nproc-per-node 2 train.py", "`--nnodes 2`"),
        ("torchrun --nnodes=4 train.py", "`--nnodes 4`"),
        ("torchrun --nnodes 2:4 train.py", "`--nnodes 2:4`"),
        ("accelerate launch --num_machines 2 train.py", "`--num_machines 2`"),
        ("deepspeed --num_nodes 2 train.py", "`--num_nodes 2`"),
        ("fabric run --num-nodes=3 train.py", "`--num-nodes 3`"),
    ],
)
def test_trials_on_several_machines_are_refused_in_one_sentence(work: Path, words: str, said: str) -> None:
    for name in ("accelerate", "deepspeed", "lightning"):
        package(name)
    Path("train.py").touch()
    for command_name in ("tune", "profile"):
        with pytest.raises(UsageError, match="starts processes on this machine alone") as caught:
            workload_from(words.split(), command_name)
        assert said in caught.value.what and "hotlap run --plan" in caught.value.remedy
    assert workload_from(words.split(), "run").arguments == tuple(
        words.split()[2 if " run " in words or " launch " in words else 1 :]
    )


@pytest.mark.parametrize(
    "words", ["torchrun --nnodes 1 train.py", "torchrun --nnodes 1:4 train.py", "torchrun train.py --nnodes 2"]
)
def test_one_machine_is_enough(work: Path, words: str) -> None:
    Path("train.py").touch()
    assert workload_from(words.split(), "tune").target == TORCHRUN
