"""``hotlap completion``: what a shell completes."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
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


@pytest.fixture
def complete(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
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


def test_bash_completes_commands_options_choices_and_files(complete) -> None:
    assert complete("hotlap", "") >= set(COMMANDS)
    assert complete("hotlap", "pro") == {"profile"}
    assert complete("hotlap", "tune", "--bu") == {"--budget"}
    assert complete("hotlap", "tune", "--goal", "") >= {"speed", "memory"}
    assert complete("hotlap", "tune", "tr") == {"train.py"}
    assert complete("hotlap", "tune", "--budget", "10m", "tr") == {"train.py"}
    assert complete("hotlap", "report", "tr") == {"train.py"}
    assert complete("hotlap", "doctor", "tr") == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    for name in COMMANDS:
        assert name in text
        for flag in importlib.import_module(f"hotlap.cli.{name}").parser().flags:
            assert flag.lstrip("-") in text, (name, flag)


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
