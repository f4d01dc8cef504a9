"""The pager: a real child process on a pseudo-terminal, in git's manner, and never where nobody reads."""

from __future__ import annotations

import importlib
import os
import pty
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import fakes
import pytest

from hotlap.cli.main import COMMANDS, main
from hotlap.cli.pager import VARIABLES, show_long
from hotlap.experiment.options import Options
from hotlap.study import create_study

LINES_OF_THE_REPORT = 60
LINES_OF_A_SCREEN = 24
LONG_LISTS = ("findings", "levers", "rule")

# A pager that writes what it was given, and how, to the file in $SEEN.
PAGER = "import os, sys; " + (
    "open(os.environ['SEEN'], 'w').write(os.environ['LESS'] + '|' + sys.stdin.read()); print('paged')"
)
QUITS_EARLY = "import sys; sys.stdin.readline(); print('quit early')"


@pytest.fixture
def project(work: Path) -> Path:
    with create_study(work / ".hotlap", fakes.WORKLOAD, Options()) as journal:
        journal.save(fakes.FINISHED)
    return work


@pytest.fixture
def on_a_terminal(project: Path) -> Callable[..., str]:
    """Run a command with standard output on a terminal; return what that showed."""

    def run(*words: str, **variables: str) -> str:
        controller, terminal = pty.openpty()
        received = bytearray()

        def read() -> None:
            while True:
                try:
                    received.extend(os.read(controller, 65536))
                except OSError:  # the other end was closed
                    return

        reader = threading.Thread(target=read)
        reader.start()
        kept = {name: it for name, it in os.environ.items() if name not in (*VARIABLES, "CI", "LESS", "NO_COLOR")}
        environment = {**kept, "TERM": "xterm", "COLUMNS": "80", "SEEN": str(project / "seen"), **variables}
        command = [sys.executable, "-m", "hotlap", *words]
        done = subprocess.run(
            command, cwd=project, env=environment, stdout=terminal, stderr=subprocess.PIPE, stdin=terminal, timeout=120
        )
        os.close(terminal)
        reader.join(10)
        os.close(controller)
        assert done.returncode == 0, done.stderr.decode()
        assert b"Traceback" not in done.stderr
        return received.decode().replace("\r\n", "\n")

    return run


def python(program: str) -> str:
    return shlex.join([sys.executable, "-c", program])


def test_the_whole_report_goes_through_the_pager(on_a_terminal: Callable[..., str], project: Path) -> None:
    shown = on_a_terminal("report", "--full", PAGER=python(PAGER))
    assert shown.strip() == "paged"
    how, _, text = (project / "seen").read_text(encoding="utf-8").partition("|")
    assert how == "FRX"
    assert "\x1b[" in text and "Where a step's time goes" in text and len(text.splitlines()) > LINES_OF_THE_REPORT


def test_own_settings_of_the_pager_stay(on_a_terminal: Callable[..., str], project: Path) -> None:
    assert "paged" in on_a_terminal("report", "--full", HOTLAP_PAGER=python(PAGER), PAGER="false", LESS="S")
    assert (project / "seen").read_text(encoding="utf-8").startswith("S|")


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (("--no-pager",), {}),
        (("--quiet",), {}),
        ((), {"CI": "true"}),
        ((), {"TERM": "dumb"}),
        ((), {"HOTLAP_PAGER": ""}),
        ((), {"HOTLAP_PAGER": "cat"}),
        ((), {"HOTLAP_PAGER": "no-such-pager --wide"}),
        ((), {"HOTLAP_PAGER": "no-such-pager | no-such-other"}),
    ],
)
def test_without_a_pager_the_report_is_printed(
    words: tuple[str, ...], variables: dict[str, str], on_a_terminal: Callable[..., str], project: Path
) -> None:
    shown = on_a_terminal("report", "--full", *words, **{"PAGER": python(PAGER), **variables})
    assert "Where a step's time goes" in shown and len(shown.splitlines()) > LINES_OF_THE_REPORT
    assert not (project / "seen").exists()


def test_a_pager_that_quits_early_is_no_error(on_a_terminal: Callable[..., str], project: Path) -> None:
    assert "quit early" in on_a_terminal("report", "--full", PAGER=python(QUITS_EARLY))


def test_a_text_longer_than_a_pipe_holds_may_be_left_unread(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGER", python(QUITS_EARLY))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    show_long("a line of the report\n" * 200_000, paged=True)
    assert capfd.readouterr().out == "quit early\n"


def test_what_is_piped_is_never_paged(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGER", python(PAGER))
    assert main(["report", "--full"]) == 0
    full = capfd.readouterr().out
    assert main(["report"]) == 0
    short = capfd.readouterr().out
    assert len(short.splitlines()) < 24 < LINES_OF_THE_REPORT < len(full.splitlines())
    assert not (project / "seen").exists() and "\x1b" not in full + short


def test_the_short_answer_is_never_paged(on_a_terminal: Callable[..., str], project: Path) -> None:
    shown = on_a_terminal("report", PAGER=python(PAGER))
    assert len(shown.splitlines()) < 24 and "3.65x faster" in shown
    assert not (project / "seen").exists()


def test_json_is_never_paged(on_a_terminal: Callable[..., str], project: Path) -> None:
    assert on_a_terminal("report", "--json", "--no-pager", PAGER=python(PAGER)).startswith("{")
    assert not (project / "seen").exists()


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_full_and_no_pager_come_together(command: str) -> None:
    flags = importlib.import_module(f"hotlap.cli.{command}").parser().flags
    assert ("--full" in flags) is (command in HAVE_LONG_REPORTS)
    assert ("--no-pager" in flags) is (command in HAVE_LONG_REPORTS or command in LONG_LISTS)


HAVE_LONG_REPORTS = {
    "tune", "profile", "batch", "memory", "scale", "infer", "lab", "demo", "nan", "check", "trace", "diff", "report",
    "doctor",
}  # fmt: skip


@pytest.mark.parametrize("name", LONG_LISTS)
def test_a_long_list_goes_through_the_pager(name: str, project: Path, on_a_terminal: Callable[..., str]) -> None:
    pager = shlex.join([sys.executable, "-c", PAGER])
    assert on_a_terminal(name, PAGER=pager) == "paged\n"
    listed = (project / "seen").read_text()
    assert listed.startswith("FRX|") and listed.count("\n") > LINES_OF_A_SCREEN
    assert "paged" not in on_a_terminal(name, "--no-pager", PAGER=pager)
