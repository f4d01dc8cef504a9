"""One running study in folders of its own, and what remains of it."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import dispositions
from harmless.fixture import changes, snapshot
from storm.processes import Identity, Process, descendants, keep, kill

from hotlap.cli.main import main
from hotlap.trial.sweeping import OF_RUNS

_HERE = Path(__file__).parent
_FAKE = _HERE.parent / "trial"
_SOURCE = _HERE.parents[1] / "src"
_START_SECONDS = 200.0
_POLL_SECONDS = 0.01
_LAUNCHER, _WATCHDOG = "/sandbox/launcher.py", "hotlap.trial.watchdog"


@dataclass(frozen=True, slots=True)
class Trial:
    """The processes by which one arm runs. ``second`` is the launcher's own child: the first process of the pid
    namespace where there is one, else the keeper. ``script`` is the script's first process."""

    launcher: Process
    second: Process
    script: Process

    def frozen(self) -> bool:
        return self.script.state == "T"


class Scene:
    """A user's folders below ``top``, and a controller that works there in an isolation ``mode``."""

    def __init__(self, top: Path, mode: str) -> None:
        self.top = top
        self.mode = mode
        self.studies = top / "studies"
        self.temporary = top / "own"
        self._others = frozenset(it.identity for it in descendants(os.getpid()))
        self._controller: subprocess.Popen[bytes] | None = None
        for folder in (self.studies, self.temporary, top / "state"):
            folder.mkdir(parents=True)
        for name in ("project/ckpt/best.pt", "project/log.txt", "project/notes.txt", "data/set.csv"):
            _write(top / name, name * 50)
        _write(top / "home/settings.json", "{}")
        shutil.copy(_HERE / "trainer.py", top / "project" / "train.py")
        self._before = snapshot(top)

    # -- the controller ------------------------------------------------------------------------

    def start(self, *words: str) -> None:
        """Start a new study, or with words ``hotlap tune`` with these instead."""
        target = ("train.py", self.top.name, str(self.top / "data"), str(self.top / "home"), str(_FAKE))
        own = words or ("--study", str(self.studies), *target)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.top / "home"),
            "TMPDIR": str(self.temporary),
            "XDG_STATE_HOME": str(self.top / "state"),
            "STORM_MODE": self.mode,
            "PYTHONPATH": os.pathsep.join((str(_SOURCE), *sys.path)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        with (self.top / "output").open("ab") as output:
            self._controller = subprocess.Popen(
                [sys.executable, str(_HERE / "controller.py"), "tune", *own],
                cwd=self.top / "project",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=dispositions.usual,
            )
        keep(self._controller.pid)

    @property
    def controller(self) -> subprocess.Popen[bytes]:
        assert self._controller is not None
        return self._controller

    def output(self) -> str:
        return (self.top / "output").read_text(errors="replace")

    # -- processes -----------------------------------------------------------------------------

    def alive(self) -> list[Process]:
        """Every process of the study."""
        self.controller.poll()
        return [it for it in descendants(os.getpid()) if it.identity not in self._others]

    def watchdog(self) -> list[int]:
        return [it.number for it in self.alive() if _WATCHDOG in it.command]

    def trials(self) -> list[Trial]:
        """Those whose script runs; not what only tries how to isolate it."""
        everybody = self.alive()
        by_parent: dict[int, list[Process]] = {}
        for it in everybody:
            by_parent.setdefault(it.parent, []).append(it)
        found = []
        for launcher in by_parent.get(self.controller.pid, []):
            for second in by_parent.get(launcher.number, []) if _LAUNCHER in launcher.command else []:
                # Orphans are its children too: the script's own process is the oldest.
                started = sorted((second, *by_parent.get(second.number, [])), key=lambda it: it.started)
                script = next((it for it in started if _LAUNCHER not in it.command), None)
                if script is not None and "train.py" in script.command:
                    found.append(Trial(launcher, second, script))
        return found

    def wait_for(self, wanted: Callable[[], object]) -> bool:
        """Whether that came true while the controller was alive."""
        deadline = time.monotonic() + _START_SECONDS
        while not wanted():
            if self.controller.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def seconds_until_gone(self, doomed: Iterable[Identity] | None, limit_seconds: float) -> float | None:
        """How long it takes until these processes are gone, or all where none are named; None beyond the limit."""
        began = time.monotonic()
        named = None if doomed is None else frozenset(doomed)
        while any(named is None or it.identity in named for it in self.alive()):
            if time.monotonic() - began > limit_seconds:
                return None
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    def end(self) -> None:
        """Remove everything, whatever was found."""
        while alive := self.alive():
            kill(it.number for it in alive)
            time.sleep(_POLL_SECONDS)
        self.controller.wait()

    # -- files ---------------------------------------------------------------------------------

    def changes(self) -> list[str]:
        """The changes in the user's folders."""
        return [f"{path}: {what}" for path, what in changes(self._before, snapshot(self.top)).items()]

    def left(self) -> list[str]:
        """Files and folders that only serve a run that is over, and any unknown ones."""
        study = self.study()
        runs = [] if study is None else [it for it in (study / "runs").glob("*") if it.is_dir()]
        found = [it for run in runs for it in run.iterdir() if it.name in OF_RUNS]
        found += [it for it in runs if it.name.startswith(".") and it.name != ".caches"]
        return [str(it.relative_to(self.top)) for it in (*found, *self.temporary.iterdir())]

    def study(self) -> Path | None:
        return next(self.studies.iterdir(), None)

    def report(self) -> tuple[int, str]:
        """The result of ``hotlap report`` for the study: the exit code and the output."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main(["report", str(self.study() or self.studies)])
        return code, said.getvalue()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
