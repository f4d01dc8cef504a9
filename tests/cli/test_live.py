"""The live view on a pseudo-terminal, in a pipe, without colours, and in a narrow window."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import fakes
import msgspec
import pytest
from fake_executor import FakeExecutor

from hotlap.api import Engine, OnProgress
from hotlap.cli.main import main
from hotlap.experiment.options import Options
from hotlap.records import Isolation, Progress, Study, Workload
from hotlap.render.live import State, fold, line, progress_words
from hotlap.study import Journal
from hotlap.trial.executor import Executor

CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-9]|4[0-9]|9[0-7]|38;|48;)[0-9;]*m")
TRYING = Progress(
    stage="trial",
    text="mixed-precision: replicate 2 of 3",
    lever="mixed-precision",
    running=fakes.estimate(1.3, 0.1),
    best=fakes.estimate(2.0, 0.05),
    replicates_done=1,
    replicates_planned=3,
    peak_bytes=5 * 2**30,
    baseline_peak_bytes=8 * 2**30,
    spent_seconds=100.0,
    budget_seconds=600.0,
)


class Terminal:
    """A pseudo-terminal as standard error; :attr:`shown` has its output once it is closed."""

    def __init__(self, columns: int) -> None:
        self._controller, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._before = os.dup(2)
        os.dup2(slave, 2)  # the width is read from the descriptor, not from the stream
        self.stream: TextIO = os.fdopen(slave, "w", encoding="utf-8", buffering=1)
        self._received = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                received = os.read(self._controller, 65536)
            except OSError:  # the other end was closed
                return
            self._received += received

    def close(self) -> None:
        os.dup2(self._before, 2)
        os.close(self._before)
        self.stream.close()
        self._reader.join(10)
        os.close(self._controller)

    @property
    def shown(self) -> str:
        return self._received.decode()


@pytest.fixture
def watched(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """Tune with this environment and terminal; return what standard error showed."""

    def search(workload: Workload, options: Options, journal: Journal, executor: Executor, tell: OnProgress) -> Study:
        tell(TRYING)
        tell(Progress(stage="trial", text="kept", lever="loader", outcome=fakes.OUTCOMES[0], spent_seconds=130.0))
        return msgspec.structs.replace(fakes.FINISHED, workload=workload)

    def tune(*options: str, columns: int = 80, **variables: str) -> str:
        for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {"TERM": "xterm-256color", **variables}.items():
            monkeypatch.setenv(name, value)
        terminal = Terminal(columns)
        monkeypatch.setattr("sys.stderr", terminal.stream)
        try:
            assert main(["tune", *options, "train.py"], engine=Engine(executor=_no_executor, search=search)) == 0
        finally:
            terminal.close()
        return terminal.shown

    yield tune


def _no_executor(directory: Path, isolation: Isolation) -> FakeExecutor:
    return FakeExecutor()


def lines(shown: str) -> list[str]:
    """Return the written lines without the codes that move the cursor."""
    return [CONTROL.sub("", it) for it in re.split(r"\r+\n|\n|\r", shown)]


def test_a_terminal_shows_progress_and_is_restored(watched: Callable[..., str]) -> None:
    shown = watched()
    plain = "\n".join(lines(shown))
    assert "hotlap  train.py" in plain
    assert "✓  loader              1.91x  1.86 to 1.96  kept" in plain
    assert COLOUR.search(shown)
    assert "\x1b[?25l" in shown and shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    # The last output erases the live view: the report follows on a clean screen.
    assert re.search(r"(\x1b\[1A\x1b\[2K)+\Z", shown)


def test_no_color_is_honoured(watched: Callable[..., str]) -> None:
    shown = watched(NO_COLOR="1")
    assert "loader" in shown and not COLOUR.search(shown)


@pytest.mark.parametrize("columns", [20, 40, 60, 200])
def test_no_line_is_wider_than_the_window(watched: Callable[..., str], columns: int) -> None:
    shown = watched(columns=columns)
    assert max(map(len, lines(shown))) <= columns


@pytest.mark.parametrize("terminal", ["dumb", "unknown"])
def test_a_dumb_terminal_gets_lines(watched: Callable[..., str], terminal: str) -> None:
    shown = watched(TERM=terminal)
    assert "\x1b" not in shown
    assert lines(shown)[0] == (
        "[1 min 40 s] trying mixed-precision, replicate 2 of 3 "
        "(so far 1.30x, 1.18 to 1.44; best plan 2.00x, 1.90 to 2.10; memory 5.0 GiB (-3.0 GiB))"
    )


def test_replicates_that_start_together_are_named_once() -> None:
    together = msgspec.structs.replace(TRYING, text="mixed-precision: replicates 2 to 3 of 3", replicates_at_once=2)
    assert "] trying mixed-precision, replicates 2 to 3 of 3 (so far" in line(fold(State(), together))
    labelled = msgspec.structs.replace(TRYING, text="Without cached-samples: replicate 2 of 3", lever="")
    assert "replicate 2 of 3: Without cached-samples (so far" in line(fold(State(), labelled))


def test_output_of_the_script_is_not_drawn_over(watched: Callable[..., str]) -> None:
    shown = watched("--show-output")
    assert "\x1b[?25l" not in shown and "\x1b[1A" not in shown
    assert any(it.startswith("[2 min 10 s] trying: loader 1.91x") for it in lines(shown))


def test_quiet_leaves_the_terminal_alone(watched: Callable[..., str]) -> None:
    assert watched("--quiet") == ""


@pytest.mark.parametrize("variables", [{}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1"}])
def test_a_pipe_gets_lines_without_cursor_movements(
    work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], variables: dict[str, str]
) -> None:
    def search(workload: Workload, options: Options, journal: Journal, executor: Executor, tell: OnProgress) -> Study:
        tell(TRYING)
        return msgspec.structs.replace(fakes.FINISHED, workload=workload)

    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["tune", "train.py"], engine=Engine(executor=_no_executor, search=search)) == 0
    err = capfd.readouterr().err
    assert "trying mixed-precision, replicate 2 of 3" in err
    assert not re.search(r"\x1b\[(?:\?25|[0-9]*[A-HJK])", err)
    if not variables:
        assert "\x1b" not in err


PLANNED = msgspec.structs.replace(TRYING, launches=12, launches_planned=34, seconds_planned=540.0)


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (TRYING, "1 min 40 s, 8 min 20 s left"),
        (PLANNED, "1 min 40 s of about 9 min, 12 of about 34 launches"),
        (msgspec.structs.replace(PLANNED, launches=36), "1 min 40 s of about 9 min, 36 launches, about 34 planned"),
        (
            msgspec.structs.replace(PLANNED, spent_seconds=600.0),
            "10 min, about 9 min planned, 12 of about 34 launches",
        ),
    ],
)
def test_progress_is_shown_against_the_plan(progress: Progress, words: str) -> None:
    assert progress_words(progress) == words
    in_a_log = line(fold(State(), progress)).partition("]")[0]
    assert in_a_log.endswith("launches" if progress.launches == 12 else "planned") is bool(progress.launches_planned)


def test_a_terminal_keeps_what_the_plan_came_to(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "34 launches in 9 min were made; about 31 launches in 8 min were planned"

    def search(workload: Workload, options: Options, journal: Journal, executor: Executor, tell: OnProgress) -> Study:
        tell(TRYING)
        tell(msgspec.structs.replace(PLANNED, stage="end", text=said, lever=""))
        return msgspec.structs.replace(fakes.FINISHED, workload=workload)

    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal(100)
    monkeypatch.setattr("sys.stderr", terminal.stream)
    try:
        assert main(["tune", "train.py"], engine=Engine(executor=_no_executor, search=search)) == 0
    finally:
        terminal.close()
    assert f"hotlap: {said}" in lines(terminal.shown)


def test_a_launch_without_a_planned_time_is_not_about_one() -> None:
    known = msgspec.structs.replace(PLANNED, launches=0, launches_planned=1, seconds_planned=0.0)
    assert progress_words(known).endswith(", 0 of 1 launch")
