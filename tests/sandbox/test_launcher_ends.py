"""The launcher's end when its owner is gone, and itself in the moment after its child, the keeper."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hotlap.sandbox import launcher
from hotlap.sandbox.order import NONE, Order

ATTEMPTS = 5


def alive(mark: str) -> list[psutil.Process]:
    """The processes with that in their command."""
    return [it for it in psutil.process_iter(["cmdline"]) if mark in " ".join(it.info["cmdline"] or ())]


def has_ended(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_frozen_process_never_stays(tmp_path: Path) -> None:
    """Nobody but these two could end it: it does not see that its parent is gone."""
    for attempt in range(ATTEMPTS):
        mark = f"300.{os.getpid()}{attempt:03}"
        started = tmp_path / f"started-{attempt}"
        command = ["sh", "-c", f"sleep {mark} & kill -STOP $!; touch {started}; wait"]
        order = tmp_path / "order"
        order.write_bytes(Order(command=command, directory=str(tmp_path), mode=NONE).encoded())
        control, ours = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", launcher.__file__, str(order), str(control)], pass_fds=[control]
        )
        os.close(control)
        while not started.exists():
            time.sleep(0.002)
        (keeper,) = psutil.Process(process.pid).children()
        os.close(ours)
        while not has_ended(keeper.pid):
            pass
        process.kill()
        process.wait()
        until = time.monotonic() + 5
        while left := alive(mark):
            if time.monotonic() > until:
                for it in left:
                    it.kill()
                pytest.fail("It stayed.")
            time.sleep(0.02)
