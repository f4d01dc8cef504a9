"""No child outlives its owner, whether the owner is interrupted, ends or is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dispositions
import msgspec
import psutil
import pytest

from hotlap.errors import HotlapError
from hotlap.records import Assignment, LaunchRequest, TurnRequest
from hotlap.trial.local import LocalExecutor
from hotlap.trial.process import run_module

Assign = Callable[..., Assignment]
WaitUntil = Callable[[Callable[[], bool]], bool]
LivingBelow = Callable[[Path], list[psutil.Process]]

OWNER = """
import os, sys
from pathlib import Path
import msgspec
from hotlap.records import TurnRequest
from hotlap.trial.local import LocalExecutor

place = Path(sys.argv[1])
request = msgspec.json.decode((place / "request.json").read_bytes(), type=TurnRequest)
try:
    LocalExecutor(place / "runs", hooks_directory=place / "no hooks").take_turns(request)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(7)
"""


@pytest.fixture
def two_arms(assign: Assign) -> tuple[Assignment, Assignment]:
    """Make two arms with workers and with processes that left the session."""
    arms = assign("--beat", "--deserter"), assign("--beat", "--ranks", 2)
    return arms


def is_frozen(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


@contextmanager
def owner_at_work(
    arms: tuple[Assignment, ...], place: Path, living_below: LivingBelow, wait_until: WaitUntil
) -> Iterator[subprocess.Popen[bytes]]:
    """Start another process whose arms take turns; yield once one of them is frozen."""
    (place / "request.json").write_bytes(msgspec.json.encode(TurnRequest(arms=arms, rounds=10_000, block_steps=1)))
    path = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", OWNER, str(place)]
    environment = {**os.environ, "PYTHONPATH": path}
    usual = dispositions.usual
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, preexec_fn=usual) as owner:
        try:
            assert wait_until(lambda: any(is_frozen(it) for it in living_below(place)))
            yield owner
        finally:
            owner.kill()


def test_killing_the_owner_kills_all_its_processes(
    executor: LocalExecutor,
    two_arms: tuple[Assignment, ...],
    tmp_path: Path,
    living_below: LivingBelow,
    wait_until: WaitUntil,
) -> None:
    with owner_at_work(two_arms, tmp_path, living_below, wait_until) as owner:
        folders = {Path(it.environ()["HOTLAP_SOCKET"]).parent for it in living_below(tmp_path)}
        owner.send_signal(signal.SIGKILL)
        assert wait_until(lambda: not living_below(tmp_path))
        assert folders
        assert wait_until(lambda: not any(folder.exists() for folder in folders))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_owner_leaves_no_processes(
    executor: LocalExecutor,
    two_arms: tuple[Assignment, ...],
    tmp_path: Path,
    living_below: LivingBelow,
    wait_until: WaitUntil,
    number: signal.Signals,
) -> None:
    with owner_at_work(two_arms, tmp_path, living_below, wait_until) as owner:
        owner.send_signal(number)
        printed, _ = owner.communicate(timeout=120)
        if number == signal.SIGINT:
            # All processes had ended before the exception reached the caller.
            assert (printed, owner.returncode) == (b"interrupted\n", 7)
            assert not living_below(tmp_path)


def test_interruption_during_the_start_up(executor: LocalExecutor, assign: Assign, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            executor.launch(LaunchRequest(assignment=assign("--fail", "hang", "--fail-at", 0), steps=2))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)


# -- running our own modules ---------------------------------------------------------------------------


def test_run_module_returns_what_was_printed() -> None:
    assert run_module("platform", timeout_seconds=60).strip() != ""


def test_run_module_reports_why_it_failed() -> None:
    with pytest.raises(HotlapError, match="No module named"):
        run_module("hotlap.no_such_module", timeout_seconds=60)


def test_run_module_reports_what_a_process_of_a_launcher_raised() -> None:
    code = "raise ValueError('planted')"
    words = ("--standalone", "--nproc-per-node=2", "--no-python", sys.executable, "-c", code)
    with pytest.raises(HotlapError, match="failed: ValueError: planted"):
        run_module("torch.distributed.run", words, timeout_seconds=200)


def test_run_module_times_out() -> None:
    began = time.monotonic()
    with pytest.raises(HotlapError, match="did not finish"):
        run_module("http.server", ("--bind", "127.0.0.1", "0"), timeout_seconds=0.5)
    assert time.monotonic() - began < 100


def test_a_module_ends_when_owner_and_watchdog_are_killed(wait_until: WaitUntil) -> None:
    code = """
from hotlap.trial.process import run_module
run_module("http.server", ("--bind", "127.0.0.1", "0"), timeout_seconds=100)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as owner:
        below = psutil.Process(owner.pid)
        found: list[psutil.Process] = []

        def at_work() -> bool:
            found[:] = below.children(recursive=True)
            return any("http.server" in it.cmdline()[-4:] for it in found if it.is_running())

        assert wait_until(at_work)
        for it in (*(it for it in found if "hotlap.trial.watchdog" in it.cmdline()), below):
            it.kill()
    assert wait_until(lambda: not any(it.is_running() and it.status() != psutil.STATUS_ZOMBIE for it in found))
