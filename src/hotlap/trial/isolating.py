"""Choosing how an executor's runs are isolated: the strongest way that works here, tested before the first launch."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hotlap.errors import HotlapError
from hotlap.files import home_directory
from hotlap.records import Isolation, Protection, ProtectionMode
from hotlap.sandbox import landlock, removal
from hotlap.sandbox.boundary import Boundary
from hotlap.sandbox.caches import cache_folders
from hotlap.sandbox.order import FENCE, NAMESPACES, NONE, SETUP_FAILED, Order
from hotlap.sandbox.probe import DENIED, WROTE
from hotlap.trial.command import unwritable
from hotlap.trial.others_files import of_others
from hotlap.trial.output import read_tail
from hotlap.trial.process import OwnedProcess
from hotlap.trial.sweeping import BRIEF, OF_RUNS

PROTECTION_VARIABLE = "HOTLAP_PROTECTION"
"""Says which mode is in force: in ``namespaces`` the runtime redirects nothing itself."""

LAYERS = "layers"
_PROBE = Path(removal.__file__).with_name("probe.py")
_BRIEF_LIMIT_SECONDS = 60.0
_NOT_ISOLATED = "isolated: "
_KERNELS_FOLDERS = ("/dev", "/proc", "/sys")
# NVIDIA's Multi-Process Service: where it listens, and the variable that moves that (its documentation, "Environment
# variables"). A layer over its pipes would cut them off from the service.
_SERVICE_VARIABLE, _SERVICE_FOLDER = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"
_INDUCTORS_CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""Inductor stores there what it compiled, and which kernels it measured to be fastest. Each launch has its own: what
one arm measures while others start must neither stay with the user nor reach the next arm (``kept_code.py``)."""

_NETWORK_GAP = "The script's network requests are sent, except those of trackers, which are silenced."
PROPERTIES_GAP = (
    "Programs that the script starts, and native code, may change the modes, owners, times and extended attributes of"
    " your files."
)
STALE_GAP = (
    "Programs that the script starts, and libraries that read files in a way that hotlap does not know, see your files"
    " as they were before the trial, not what the script has written since."
)
IGNORED_GAP = "A program that may not write a file, and does not fail, may produce other results."
HARD_LINKS_GAP = "Of a file with several names (hard links), only the name that is written to shows what was written."
_SESSION_GAP = (
    "Processes of the script may stay if hotlap, its watchdog and both processes of the launcher are killed at once."
)
_MEMORY_GAP = "Named shared memory, semaphores and message queues that the script leaves behind stay (/dev/shm)."
_FENCE_GAPS = (PROPERTIES_GAP, STALE_GAP, IGNORED_GAP, HARD_LINKS_GAP, _SESSION_GAP, _MEMORY_GAP)
_OLD_LANDLOCK_GAP = "Programs that the script starts may truncate files: this kernel's Landlock does not know of it."
_NONE_GAPS = (
    "Programs that the script starts, and libraries that write files without Python, change your files.",
    STALE_GAP,
    HARD_LINKS_GAP,
    _SESSION_GAP,
    _MEMORY_GAP,
)


@dataclass(frozen=True, slots=True)
class _Way:
    """One way of isolating; ``beside_the_run``: layers are in the run's folder, else in the temporary directory."""

    mode: ProtectionMode
    pid_namespace: bool = False
    next_to_the_run: bool = True


_WAYS = (
    _Way("namespaces", pid_namespace=True),
    _Way("namespaces", pid_namespace=True, next_to_the_run=False),
    _Way("namespaces"),
    _Way("namespaces", next_to_the_run=False),
    _Way("fence"),
    _Way("none"),
)


def code_folder(folder: Path) -> Path:
    """Where torch's compiler stores its code, in the temporary folder of a launch."""
    return folder / "inductor"


class Isolator:
    """Creates the orders for the launcher. ``runs`` is the folder of all runs, ``environment`` what children get.

    ``shared_by_runs`` are folders of ours that all runs see and change.
    """

    def __init__(self, requested: Isolation, runs: Path, environment: Mapping[str, str]) -> None:
        self._requested = requested
        self._runs = runs
        self._environment = dict(environment)
        self.shared_by_runs: tuple[str, ...] = ()

    @property
    def protection(self) -> Protection:
        """How runs are protected. Raises :class:`HotlapError` where trials could do harm and the user did not allow
        it."""
        return self._chosen[1]

    @cached_property
    def _chosen(self) -> tuple[_Way, Protection]:
        reasons: list[str] = []
        for way in _WAYS:
            if self._requested.mode not in (None, way.mode):
                continue
            why_not = self._why_not(way)
            if not why_not:
                return way, self._protection(way, reasons)
            reasons.append(f"{_named(way)}: {why_not}")
        raise HotlapError(
            "Trials cannot be isolated on this machine, and could harm your files and processes.",
            where="; ".join(dict.fromkeys(reasons)),
            remedy="`--unprotected` continues anyway: then only writes of Python code are kept from your files.",
        )

    def _why_not(self, way: _Way) -> str:
        """Why a way does not work here; empty where it does."""
        if way.mode == "none":
            return (
                "" if self._requested.unprotected or self._requested.mode == "none" else "`--unprotected` was not given"
            )
        if way.mode == "fence" and self._requested.unprotected and self._requested.mode is None:
            return "`--unprotected` was given"
        if way.mode == "fence" and landlock.version() == 0:
            return "the kernel has no Landlock, or it is switched off"
        if way.mode == "namespaces" and self._requested.mode is None and (others := of_others(Path.cwd())):
            return f"{others} belongs to another user or group, and no layer of this user's can hold a copy of it"
        return self._tried(way)

    def _protection(self, way: _Way, reasons: Sequence[str]) -> Protection:
        gaps: tuple[str, ...] = ()
        if way.mode == "fence":
            gaps = _FENCE_GAPS
            gaps += (_OLD_LANDLOCK_GAP,) if landlock.version() < landlock.TRUNCATE_VERSION else ()
        elif way.mode == "none":
            gaps = _NONE_GAPS
        return Protection(
            mode=way.mode,
            network=self._requested.network,
            pid_namespace=way.pid_namespace,
            shared_folders=tuple(it for it in self._caches(Path.cwd()) if Path(it).is_dir()),
            gaps=gaps if self._requested.network == "none" else (*gaps, _NETWORK_GAP),
            reasons=tuple(dict.fromkeys(reasons)),
        )

    # -- orders --------------------------------------------------------------------------------

    def order(self, command: Sequence[str], directory: str, run_directory: Path, folder: Path) -> Order:
        """How to start a command for the run of that folder, whose process owns the temporary ``folder``."""
        way = self._chosen[0]
        if way.mode != "namespaces":
            self._boundary(way, directory, run_directory, folder).write(folder)
        return self._order(way, command, directory, run_directory, folder)

    def _boundary(self, way: _Way, directory: str, run_directory: Path, folder: Path) -> Boundary:
        """A cache that does not exist is protected in a fence, where the kernel cannot allow what does not exist."""
        caches = [it for it in self._caches(Path(directory)) if way.mode != "fence" or Path(it).exists()]
        return Boundary(
            protected=[os.path.realpath(it) for it in (directory, *_home())],
            caches=caches,
            run=[os.path.realpath(it) for it in (str(run_directory), str(folder), *self.shared_by_runs)],
        )

    def layers_of(self, run_directory: Path, folder: Path) -> Path | None:
        """Where the run's layers are; None where it has none."""
        way = self._chosen[0]
        if way.mode != "namespaces":
            return None
        return (run_directory if way.next_to_the_run else folder) / LAYERS

    def variables(self, folder: Path) -> dict[str, str]:
        """The variables that isolation adds to the run's environment."""
        mode = self.protection.mode
        found: dict[str, str] = {PROTECTION_VARIABLE: mode}
        if mode != "namespaces":  # a temporary directory of the run's own, since the usual one has other users' files
            _make(folder / "tmp")
            found["TMPDIR"] = str(folder / "tmp")
        _make(code_folder(folder))
        found[_INDUCTORS_CACHE] = str(code_folder(folder))
        return found

    def _order(self, way: _Way, command: Sequence[str], directory: str, run_directory: Path, folder: Path) -> Order:
        layers = (run_directory if way.next_to_the_run else folder) / LAYERS
        own = [str(run_directory), str(folder), *self.shared_by_runs]
        caches = self._caches(Path(directory))
        shared: dict[str, str] = {}
        if way.mode == "namespaces":
            shared = {it: it for it in (*own, *self._service_folder())} | self._shared_caches(caches)
        return Order(
            command=list(command),
            directory=directory,
            mode={"namespaces": NAMESPACES, "fence": FENCE, "none": NONE}[way.mode],
            pid_namespace=way.pid_namespace,
            network=self._requested.network,
            layers=str(layers),
            shared=list(shared.values()),
            shared_at=list(shared),
            hidden=[str(self._runs)],
            interest=self._interest(command, directory),
            writable=[*own, *_KERNELS_FOLDERS, *caches],
            owned=[*(str(run_directory / it) for it in OF_RUNS), str(layers), str(folder)],
        )

    def _caches(self, directory: Path) -> list[str]:
        home = _home()
        return cache_folders({**os.environ, **self._environment}, "".join(home), (*home, str(directory)))

    def _shared_caches(self, caches: Sequence[str]) -> dict[str, str]:
        """Where each cache is kept: one that does not exist yet is kept for the runs of this study alone."""
        found = {}
        for number, cache in enumerate(caches):
            kept = Path(cache)
            if not kept.is_dir():
                kept = self._runs / ".caches" / str(number)
                _make(kept)
            found[cache] = str(kept)
        return found

    def _service_folder(self) -> list[str]:
        """Where NVIDIA's Multi-Process Service listens, if it does. Its own file there shows that: the variable may
        name any folder."""
        folder = Path({**os.environ, **self._environment}.get(_SERVICE_VARIABLE, _SERVICE_FOLDER))
        return [str(folder)] if folder.is_absolute() and (folder / "control").exists() else []

    def _interest(self, command: Sequence[str], directory: str) -> list[str]:
        """Paths that the script is likely to write to: layers must not miss them."""
        named = [it.rpartition("=")[2] for it in command]
        paths = [it for it in named if it.startswith("/") and os.path.lexists(it)]
        return list(dict.fromkeys([directory, *_home(), tempfile.gettempdir(), *paths]))

    # -- trying --------------------------------------------------------------------------------

    def run_briefly(
        self, command: Sequence[str], directory: str, environment: Mapping[str, str], shared: Path
    ) -> tuple[int | None, str]:
        """Run a command in isolation like a trial, but with the folder ``shared`` visible and writable.

        Returns its exit status (None when it had to be ended) and what it wrote.

        Raises :class:`HotlapError` where it cannot be isolated in that directory.
        """
        status, said = self._run(self._chosen[0], command, directory, environment, shared)
        if status == SETUP_FAILED and _NOT_ISOLATED in said:
            raise HotlapError(
                f"Trials cannot be isolated in {directory}: {_why_not_isolated(said)}.",
                remedy="Start hotlap in that folder: it uses the way of isolating trials that works there.",
            )
        return status, said

    def _run(
        self, way: _Way, command: Sequence[str], directory: str, environment: Mapping[str, str], shared: Path | None
    ) -> tuple[int | None, str]:
        process = OwnedProcess()
        run_directory = self._runs / f"{BRIEF}{process.folder.name}"
        process.take(run_directory)
        try:
            run_directory.mkdir(mode=0o700, parents=True)
            order = self._order(way, command, directory, run_directory, process.folder)
            order = order.with_owned(str(run_directory))
            if shared is not None:
                order = order.with_shared(str(shared))
            output = process.folder / "output"
            process.start(command, directory=directory, environment=environment, output=output, order=order)
            in_time = process.wait(_BRIEF_LIMIT_SECONDS)
            said = read_tail(output)
        except OSError as error:
            raise unwritable(self._runs, error) from error
        finally:
            status = process.kill()
        return status if in_time else None, said

    def _tried(self, way: _Way) -> str:
        """Write a file in isolation, and check that it stays there. Returns why that does not work, or nothing."""
        places = [Path.cwd(), *map(Path, _home()), Path(tempfile.gettempdir())]
        place = next((it for it in places if os.access(it, os.W_OK | os.X_OK)), places[0])
        path = place / f".hotlap-probe-{secrets.token_hex(8)}"
        command = [sys.executable, "-I", "-S", str(_PROBE), str(path)]
        status, said = self._run(way, command, str(place), os.environ, None)
        if path.exists():
            path.unlink()
            return "a file that was written in isolation was there outside of it"
        if status == SETUP_FAILED:
            return _why_not_isolated(said)
        expected = WROTE if way.mode == "namespaces" else DENIED
        return "" if status == 0 and said.startswith(expected) else f"trying it gave {said.strip() or status!r}"


def _home() -> list[str]:
    """This user's home, or nothing where there is none."""
    home = home_directory()
    return [str(home)] if home is not None else []


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder.parent, error) from error


def _why_not_isolated(said: str) -> str:
    return said.strip().rpartition(_NOT_ISOLATED)[2]


def _named(way: _Way) -> str:
    details = "" if way.mode != "namespaces" or way.pid_namespace else " without a pid namespace"
    return f"{way.mode}{details}{'' if way.next_to_the_run else ' with layers in the temporary directory'}"
