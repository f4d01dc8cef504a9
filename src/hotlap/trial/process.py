"""Starting a process that cannot outlive us, and running one of our own modules in one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from hotlap.errors import HotlapError
from hotlap.sandbox import removal
from hotlap.sandbox.order import LEFT_RUNNING, NAMESPACES, NONE, Order
from hotlap.trial import tree
from hotlap.trial.guard import guard, own_python_path
from hotlap.trial.output import read_tail
from hotlap.trial.sweeping import disown, make_own

_POLL_SECONDS = 0.02
_LONGEST_FOLDER_BYTES = 70
_LONGEST_OUTPUT_BYTES = 16 * 2**20
_ORDER = "order"
# With the rank that torch puts before it; exceptions of torch's launcher are left out.
_EXCEPTION = re.compile(r"(?:\[\w+\]:\s*)?((?!torch\.distributed\.elastic)[A-Za-z_][\w.]*(?:Error|Exception)\b.*\S)")


class OwnedProcess:
    """A process in a session of its own, and a temporary ``folder`` next to it; both are gone after :meth:`kill`.

    The process is not reaped before that, so that its number stays ours while we may still signal it. Raises
    :class:`HotlapError` when the folder cannot be made.
    """

    def __init__(self) -> None:
        self.folder = make_own("hotlap-", _short_folder())
        self.root = tree.Root(mark=str(self.folder))
        self._popen: subprocess.Popen[bytes] | None = None
        self._control: int | None = None
        self._status: int | None = None
        self._owned: list[str] = []

    def take(self, folder: Path) -> None:
        """Have a folder, which need not exist yet, removed together with the process."""
        self._owned.append(str(folder))
        guard().expect(self.root.mark, self._owned)

    def start(
        self,
        command: Sequence[str],
        *,
        directory: str,
        environment: Mapping[str, str],
        output: Path,
        errors: Path | None = None,
        order: Order | None = None,
    ) -> None:
        """Start it, with nothing to read; what it writes is appended to ``output``, its errors too unless they have a
        file of their own. With an ``order`` the launcher starts it, in isolation.

        Raises :class:`OSError` when the command cannot be started.
        """
        if order is not None:
            self._owned += [it for it in order.owned if it not in self._owned]
        guard().expect(self.root.mark, self._owned)
        if order is not None and order.mode == NAMESPACES:  # not sooner: now whoever outlives us will remove it
            Path(order.layers).mkdir(mode=0o700)
        words, passed = (list(command), ()) if order is None else self._launcher(order)
        with ExitStack() as files:
            for descriptor in passed:
                files.callback(os.close, descriptor)
            self._popen = subprocess.Popen(
                words,
                cwd=directory,
                env={**environment, tree.MARK_VARIABLE: self.root.mark},
                stdin=subprocess.DEVNULL,
                stdout=files.enter_context(output.open("ab")),
                stderr=subprocess.STDOUT if errors is None else files.enter_context(errors.open("ab")),
                start_new_session=True,
                pass_fds=passed,
            )
        self.root = tree.Root.of(self._popen.pid, self.root.mark, launcher=order is not None)
        guard().started(self.root)

    def _launcher(self, order: Order) -> tuple[list[str], tuple[int, ...]]:
        """The launcher's command, and the end of a pipe that closes when this process ends, however it ends."""
        path = self.folder / _ORDER
        path.write_bytes(order.encoded())
        listened, self._control = os.pipe()
        return [sys.executable, "-I", "-S", str(tree.LAUNCHER), str(path), str(listened)], (listened,)

    def exited(self) -> bool:
        """Whether the process itself has ended (or never began), by a look that does not reap it."""
        if self._popen is None:
            return True
        return os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def left_running(self) -> bool:
        """Whether processes of an isolated command were left when it had ended."""
        return (self.folder / f"{_ORDER}{LEFT_RUNNING}").exists()

    def wait(self, limit_seconds: float) -> bool:
        """Wait for the end of the process itself; False when it is still there after ``limit_seconds``."""
        deadline = time.monotonic() + limit_seconds
        while not self.exited():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def end(self) -> int | None:
        """End all that is left of it and return the exit status of the process itself: negative for a signal's number,
        None when it was never started or cannot be ended. May be called again."""
        tree.kill(self.root)
        if self._popen is not None:
            with suppress(subprocess.TimeoutExpired):
                self._status = self._popen.wait(timeout=1.0)
                self._popen = None
        return self._status

    def kill(self) -> int | None:
        """The same, and remove the folder, and those that are owned by its order."""
        self.end()
        if self._control is not None:  # not sooner: the launcher takes it for the end of its owner
            os.close(self._control)
            self._control = None
        for folder in (*self._owned, str(self.folder)):
            removal.remove(folder)
        disown(self.folder)
        guard().release(self.root.mark)
        return self._status


def _short_folder() -> str:
    """Where temporary folders go: the path of a Unix socket may have about a hundred bytes at most."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _LONGEST_FOLDER_BYTES else "/tmp"


def _complaint(errors: str) -> str:
    """The line that says what went wrong: the last one that names an exception, or else the last with words.

    A launcher of several processes raises one of its own at the end, which says no more than that a process failed.
    """
    raised = [it[1] for it in map(_EXCEPTION.match, errors.splitlines()) if it]
    worded = [it.strip() for it in errors.splitlines() if any(map(str.isalnum, it))]
    return (raised or worded or [""])[-1]


def run_module(module: str, arguments: Sequence[str] = (), *, timeout_seconds: float) -> str:
    """Run ``python -m module arguments`` in a child of this interpreter and return its standard output.

    Raises :class:`HotlapError` when it fails, prints more than 16 MiB, or takes longer than ``timeout_seconds``; the
    child and its workers are gone then too.
    """
    where = " ".join(("python -m", module, *arguments))
    command = [sys.executable, "-m", module, *arguments]
    process = OwnedProcess()
    output, errors = process.folder / "output", process.folder / "errors"
    try:
        process.start(
            command,
            directory=str(Path.cwd()),
            environment={**os.environ, "PYTHONPATH": own_python_path()},
            output=output,
            errors=errors,
            # Not isolated, but ended by the launcher when we and the watchdog are killed.
            order=Order(command=command, directory=str(Path.cwd()), mode=NONE, owned=[str(process.folder)]),
        )
        in_time = process.wait(timeout_seconds)
        printed = output.read_bytes() if output.stat().st_size <= _LONGEST_OUTPUT_BYTES else None
        complaint = _complaint(read_tail(errors))
    finally:
        status = process.kill()
    if not in_time:
        what = f"{module} did not finish within {timeout_seconds:g} seconds."
        raise HotlapError(what, where=where, remedy="Try again when the machine is less busy.")
    if status != 0 or printed is None:
        what = f"{module} failed: {complaint or 'exit status ' + str(status)}."
        raise HotlapError(what, where=where, remedy="Run that command by hand to see its whole output.")
    return printed.decode("utf-8", "replace")
