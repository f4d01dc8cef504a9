"""``hotlap completion``: what a shell completes."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hotlap.cli.completion import SHELLS
from hotlap.cli.main import COMMANDS, main

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_shtab_hotlap
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    found = capsys.readouterr()
    assert not found.err
    return found.out


Complete = Callable[..., set[str]]


@pytest.fixture
def complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Complete:
    """What bash offers for the last of these words."""
    file = tmp_path / "completion.bash"
    file.write_text(script("bash", capsys))
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").touch()

    def asked(*words: str) -> set[str]:
        command = ["bash", "--norc", "-c", ASK, "bash", str(file), *words]
        found = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=30, check=True)
        return set(found.stdout.split())

    return asked


def test_bash_completes_commands_options_choices_and_files(complete: Complete) -> None:
    assert complete("hotlap", "") >= set(COMMANDS)
    assert complete("hotlap", "pro") == {"profile"}
    assert complete("hotlap", "tune", "--bu") == {"--budget"}
    assert complete("hotlap", "tune", "--goal", "") >= {"speed", "memory"}
    assert complete("hotlap", "tune", "tr") == {"train.py"}
    assert complete("hotlap", "tune", "--budget", "10m", "tr") == {"train.py"}
    assert complete("hotlap", "report", "tr") == {"train.py"}
    assert complete("hotlap", "doctor", "tr") == set()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_bash_completes_every_option_of_a_command(name: str, complete: Complete) -> None:
    assert complete("hotlap", name, "-") == set(_options(name))


def test_zsh_and_fish_have_every_option_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    zsh, fish = script("zsh", capsys), script("fish", capsys)
    for name in COMMANDS:
        _, _, rest = zsh.partition(f"_shtab_hotlap_{name}_options=(\n")
        options, _, _ = rest.partition("\n)\n")
        for flag in _options(name):
            assert re.search(rf"(?m)^  .*{flag}(?![\w-])", options), (name, flag)
            kind = "l" if flag.startswith("--") else "s"
            said = rf"(?m)^complete -c hotlap -n '[^']* {name}'.* -{kind} {flag.lstrip('-')}(?![\w-])"
            assert re.search(said, fish), (name, flag)


def _options(name: str) -> frozenset[str]:
    flags: frozenset[str] = importlib.import_module(f"hotlap.cli.{name}").parser().flags
    return flags


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_itself_reads_the_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "script"
    file.write_text(script(shell, capsys))
    subprocess.run([shell, "-n", str(file)], check=True, timeout=30)


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) != 0
    assert 'pip install "hotlap[completion]"' in capsys.readouterr().err
