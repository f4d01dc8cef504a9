"""How hotlap ends on SIGTERM, on SIGHUP, and when its terminal is closed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dispositions
import pytest

from hotlap.cli.main import main
from hotlap.cli.signals import Ended, EndingSignals
from hotlap.study import load_study

TUNE = """
import sys, time
from pathlib import Path
from hotlap.api import Engine
from hotlap.cli.main import main
from hotlap.records import Progress

def search(workload, options, journal, executor, tell):
    tell(Progress(stage="trial", text="trying"))
    try:
        Path("ready").touch()
        time.sleep(60)
    finally:
        if "slowly" in sys.argv:
            Path("ending").touch()
            time.sleep(1.5)

sys.exit(main(["tune", "train.py"], engine=Engine(executor=lambda directory, isolation: None, search=search)))
"""


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Open both ends of a pseudo-terminal."""
    ours, theirs = os.openpty()
    yield ours, theirs
    for end in (ours, theirs):
        try:
            os.close(end)
        except OSError:
            continue


def started(work: Path, stderr: int, *words: str, preexec: Callable[[], None] = dispositions.usual) -> subprocess.Popen:
    """Start a search and wait until it runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", TUNE, *words],
        cwd=work,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        preexec_fn=preexec,
    )
    wait_for(work / "ready", process)
    return process


def wait_for(path: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def read(terminal: int) -> str:
    os.set_blocking(terminal, False)
    received = b""
    try:
        while chunk := os.read(terminal, 65536):
            received += chunk
    except OSError:
        pass
    return received.decode()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_the_study_is_saved_and_the_cursor_restored(
    work: Path, terminal: tuple[int, int], number: signal.Signals, code: int
) -> None:
    process = started(work, terminal[1])
    process.send_signal(number)
    assert process.wait(timeout=120) == code
    shown = read(terminal[0])
    assert "\x1b[?25l" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert "Traceback" not in shown
    assert shown.count(f"hotlap: ended by {number.name}") == (number != signal.SIGINT)
    (study,) = (work / ".hotlap").glob("*/study.json")
    assert load_study(study.parent).status == "interrupted"


def test_further_signals_do_not_disturb_the_shutdown(work: Path, terminal: tuple[int, int]) -> None:
    process = started(work, terminal[1], "slowly")
    process.send_signal(signal.SIGTERM)
    wait_for(work / "ending", process)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=120) == 143
    assert read(terminal[0]).count("hotlap: ended by SIGTERM") == 1
    (study,) = (work / ".hotlap").glob("*/study.json")
    assert load_study(study.parent).status == "interrupted"


def test_signals_ignored_at_the_start_stay_ignored(work: Path, terminal: tuple[int, int]) -> None:
    """A background job is ended neither by Ctrl-C nor by closing its terminal."""
    process = started(work, terminal[1], preexec=dispositions.ignoring_interrupts)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 143


def test_a_terminal_that_is_closed(work: Path) -> None:
    """Save the study even if nothing can be printed any more."""
    process, ours = pty.fork()
    if process == 0:
        try:
            os.chdir(work)
            dispositions.usual()
            path = os.pathsep.join(sys.path)
            environment = {**os.environ, "PYTHONPATH": path, "TERM": "xterm"}
            os.execve(sys.executable, [sys.executable, "-c", TUNE], environment)
        finally:
            os._exit(99)
    deadline = time.monotonic() + 120
    while not (work / "ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.close(ours)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 129
    (study,) = (work / ".hotlap").glob("*/study.json")
    assert load_study(study.parent).status == "interrupted"


def test_handlers_are_installed_only_while_a_command_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(it) for it in (signal.SIGTERM, signal.SIGHUP)]

    def told(*anything: object) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        return 0

    monkeypatch.setattr("hotlap.cli.levers.main", told)
    assert main(["levers"]) == 143
    assert capsys.readouterr().err == "hotlap: ended by SIGTERM\n"
    assert [signal.getsignal(it) for it in (signal.SIGTERM, signal.SIGHUP)] == before


def test_commands_in_a_thread_install_no_handlers() -> None:
    seen: list[object] = []

    def work() -> None:
        with EndingSignals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_existing_handlers_are_kept() -> None:
    previous = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with EndingSignals() as signals:
            os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received is None
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_a_forked_process_keeps_the_default_handling() -> None:
    with EndingSignals():
        process = os.fork()
        if process == 0:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(10)
            except Ended:
                os._exit(3)
            finally:
                os._exit(4)
        status = os.waitpid(process, 0)[1]
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
