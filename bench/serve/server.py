"""Start ``examples/serving`` in a process of its own, and end it with all of its processes."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.serve.load import HOST

SERVE = Path(__file__).parents[2] / "examples" / "serving" / "serve.py"
LONGEST_START_SECONDS = 180.0
LONGEST_END_SECONDS = 30.0
LONGEST_LAST_SECONDS = 5.0
"""How long processes of the server may outlive its first one."""


class ServerFailed(Exception):
    """The server did not start, or left processes behind; the message holds the end of its output."""


@contextlib.contextmanager
def serving(folder: Path, output: Path, *options: str) -> Iterator[int]:
    """Serve ``folder`` on a free port of this machine, which is yielded; ``output`` gets what the server prints.

    Raises :class:`ServerFailed`.
    """
    port = free_port()
    command = [sys.executable, os.fspath(SERVE), os.fspath(folder), "--port", str(port), *options]
    with output.open("wb") as printed:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait_until_ready(process, port, output)
        yield port
    finally:
        left = _end(process)
    if left:
        raise ServerFailed(f"{len(left)} processes were left: {', '.join(left)}. {_tail(output)}")


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def members(session: int) -> list[psutil.Process]:
    """The processes of a session that are alive."""
    found = []
    for it in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(it.pid) == session and it.status() != psutil.STATUS_ZOMBIE:
                found.append(it)
    return found


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    until = time.monotonic() + LONGEST_START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise ServerFailed(f"The server ended with exit code {process.returncode}. {_tail(output)}")
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=5)) as connection,
        ):
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise ServerFailed(f"The server did not answer within {LONGEST_START_SECONDS:.0f} s. {_tail(output)}")


def _end(process: subprocess.Popen[bytes]) -> list[str]:
    """End the server by SIGTERM; the names of the processes that outlived it, which are killed."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LONGEST_END_SECONDS)
    until = time.monotonic() + LONGEST_LAST_SECONDS
    while members(process.pid) and time.monotonic() < until:  # on a busy machine the last one takes a moment
        time.sleep(0.05)
    names = []
    for it in members(process.pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            names.append(f"{it.pid} {' '.join(it.cmdline())[-80:]}")
            it.kill()
    process.wait()
    return names


def _tail(output: Path) -> str:
    return output.read_text(errors="replace")[-2000:]
