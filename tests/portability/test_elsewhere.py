"""What reads and prints works without torch, and on systems where no script can be run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil  # noqa: F401  (while the system is known: it decides on import what there is)
import pytest

from hotlap.api import local_executor
from hotlap.cli.main import COMMANDS, RUNS_SCRIPTS, main
from hotlap.errors import HotlapError

TESTS = Path(__file__).parents[1]
STUDY = str(TESTS / "study" / "format-1")
SYSTEMS = ("linux", "darwin", "win32")
TRACE = '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 5}]}'


def hotlap(system: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in ``folder`` as if on that system, without torch."""
    command = [sys.executable, str(Path(__file__).with_name("elsewhere.py")), system, *words]
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent / "src")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


READING = {
    "lint": ("lint", "train.py"),
    "rule": ("rule", "HL101"),
    "findings": ("findings", "no-workers"),
    "levers": ("levers", "compile"),
    "report": ("report", STUDY),
    "page": ("report", STUDY, "--html", "page.html"),
    "history": ("history",),
    "export": ("export", "csv", STUDY, "--out", "tables"),
    "trace": ("trace", "trace.json"),
    "diff": ("diff", STUDY, STUDY),
    "new": ("new", "--task", "image", "project"),
}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("words", READING.values(), ids=list(READING))
def test_commands_that_run_no_script_work(words: tuple[str, ...], system: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n\nprint(torch.zeros(1).item())\n")
    (tmp_path / "trace.json").write_text(TRACE)
    shutil.copytree(STUDY, tmp_path / ".hotlap" / "2026-10-05-1200-00")
    done = hotlap(system, tmp_path, *words)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert done.stdout or words[-1] == "page.html"


@pytest.mark.parametrize("system", SYSTEMS[1:])
def test_a_command_that_runs_a_script_says_that_it_needs_linux(system: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('ran', 'w')\n")
    done = hotlap(system, tmp_path, "tune", "train.py")
    name = {"darwin": "macOS", "win32": "Windows"}[system]
    assert done.returncode != 0
    said = f"hotlap: `hotlap tune` needs Linux: hotlap can run scripts only there. This is {name}."
    assert (done.stdout, done.stderr.splitlines()[0]) == ("", said)
    assert sorted(it.name for it in tmp_path.iterdir()) == ["train.py"]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_each_command_either_reads_or_needs_linux(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    main([command, "--help"])
    assert ("needs Linux" in capsys.readouterr().err) == (command in RUNS_SCRIPTS)


def test_the_python_interface_needs_linux_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(HotlapError, match="needs Linux"):
        local_executor(tmp_path)


def test_a_file_of_the_command_line_that_is_no_command_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["screen"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == "hotlap: There is no command named 'screen'."
