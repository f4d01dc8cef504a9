"""Running the user's script next to this process, which watches it and leaves it alone.

The script has the terminal, the folder, the process group and the open files that it would have without hotlap. Signals
reach it as they would, and this process ends as the script did. When this process is killed, the kernel ends the
script, and the watchdog what that leaves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from hotlap import files
from hotlap.records import WATCH_ROW_BYTES, WATCH_ROWS, WATCH_SUFFIX, WatchRow, Workload
from hotlap.sandbox.kernel import end_with_parent
from hotlap.trial.command import command_of, start_failure
from hotlap.trial.tree import MARK_VARIABLE

_FORWARDED = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)
_FROM_TERMINAL = 0x80
"""``si_code`` of a signal that the kernel sent, as for Ctrl-C: it went to the whole process group, so to the script."""
_MOST_FILES = 4096


@dataclass(frozen=True, slots=True)
class HowItEnded:
    """The exit code, or the number of the signal that ended the script."""

    exit_code: int | None = None
    signal_number: int | None = None

    @property
    def signal_name(self) -> str:
        """``SIGTERM``, a number where it has no name, or nothing."""
        if self.signal_number is None:
            return ""
        try:
            return signal.Signals(self.signal_number).name
        except ValueError:
            return f"signal {self.signal_number}"


def run_beside(
    workload: Workload, environment: Mapping[str, str], folder: Path, tick: Callable[[], None], seconds: float
) -> HowItEnded:
    """Run the script to its end and call ``tick`` about every so many seconds meanwhile.

    ``folder`` is one of ours (:func:`hotlap.trial.owned_folder.owned_folder`), by which whatever is left is found if
    this process is killed. Call it in the main thread. Raises :class:`hotlap.errors.ScriptError` when the script
    cannot be started.
    """
    watched: set[int | signal.Signals] = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = _start(workload, {**environment, MARK_VARIABLE: str(folder)}, before)
        return _wait(child, watched, tick, seconds)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_like(ended: HowItEnded) -> int:
    """The exit code of this process. After a signal it ends here, by the same one."""
    if ended.signal_number is None:
        return ended.exit_code or 0
    import resource  # a script that was killed left its own core file

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if ended.signal_number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(ended.signal_number, signal.SIG_DFL)
    os.kill(os.getpid(), ended.signal_number)
    return 128 + ended.signal_number


def _start(
    workload: Workload, environment: Mapping[str, str], mask: set[int | signal.Signals]
) -> subprocess.Popen[bytes]:
    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        end_with_parent(signal.SIGKILL)

    try:
        return subprocess.Popen(command_of(workload), env=dict(environment), close_fds=False, preexec_fn=prepare)
    except OSError as error:
        raise start_failure(workload, error) from error


def _wait(
    child: subprocess.Popen[bytes], watched: set[int | signal.Signals], tick: Callable[[], None], seconds: float
) -> HowItEnded:
    due = time.monotonic() + seconds
    while child.poll() is None:
        came = signal.sigtimedwait(watched, max(0.0, due - time.monotonic()))
        if came is not None and came.si_signo != signal.SIGCHLD and came.si_code != _FROM_TERMINAL:
            child.send_signal(came.si_signo)
        if time.monotonic() >= due:
            tick()
            due = time.monotonic() + seconds
    code = child.returncode
    return HowItEnded(signal_number=-code) if code < 0 else HowItEnded(exit_code=code)


class Rows:
    """The rows that processes of the script have written into a folder since the last look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[int, int] = {}
        self.missed = 0

    def fresh(self) -> Iterator[WatchRow]:
        """Rows that were not seen yet, in the order of each process. A half-written one is seen next time."""
        for path in sorted(self._folder.glob(f"*{WATCH_SUFFIX}"))[:_MOST_FILES]:
            try:
                text = files.read_bounded(path, WATCH_ROWS * WATCH_ROW_BYTES)
            except OSError:
                continue
            rows = [row for line in text.split(b"\n") if (row := _row(line)) is not None]
            for row in sorted(rows, key=lambda it: it.number):
                seen = self._seen.get(row.process, 0)
                if row.number > seen:
                    self.missed += row.number - seen - 1
                    self._seen[row.process] = row.number
                    yield row


def _row(line: bytes) -> WatchRow | None:
    try:
        return msgspec.json.decode(line.strip(b" \0"), type=WatchRow)
    except msgspec.MsgspecError:
        return None


def resident_bytes(process: int) -> int | None:
    """The resident memory of a process; None where it is gone, or has ended and holds none."""
    try:
        return int(psutil.Process(process).memory_info().rss) or None
    except psutil.Error:
        return None
