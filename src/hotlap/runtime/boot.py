"""Starting hotlap in a process of the user.

There are three ways: a trial (``HOTLAP_ASSIGNMENT``), ``hotlap run`` (``HOTLAP_PLAN``, ``HOTLAP_WATCH``), and
``hotlap.apply``. The last two install the plan's levers and nothing else: no redirection, no seed, and a clock only
with ``--watch``. In the first two any failure
ends the process (:mod:`hotlap.runtime.entrance`).
"""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, get_args

import msgspec

from hotlap.errors import HotlapError, ScriptError
from hotlap.records import Assignment, Plan, ProtectionMode
from hotlap.runtime import presence
from hotlap.runtime.entrance import FailureEndsProcess
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.imports import Callback, ImportWatch
from hotlap.runtime.sharding import WATCHED as SHARDING

if TYPE_CHECKING:
    from hotlap.runtime.files import Redirection
    from hotlap.runtime.interception import Interception
    from hotlap.sandbox.boundary import Boundary


_active: list[Interception] = []


def active() -> Interception | None:
    """The active interception of this process, if any: suspending it shows its overhead."""
    return _active[0] if _active else None


def boot() -> None:
    """Called by ``sitecustomize`` before the user's script begins; whatever this raises ends the process."""
    if "HOTLAP_ASSIGNMENT" in os.environ:
        _boot_trial()
    elif "HOTLAP_PLAN" in os.environ or "HOTLAP_WATCH" in os.environ:
        _boot_run(os.environ.get("HOTLAP_PLAN", ""), os.environ.get("HOTLAP_WATCH", ""))


def apply_plan(path: str | os.PathLike[str] = "hotlap.toml") -> Plan:
    """Switch on the levers of a plan file in this process, from torch's import on.

    Call it before the loaders, models and optimizers are created: existing ones do not change. Raises
    :class:`hotlap.errors.PlanError` when the plan cannot be read or names what does not exist. A torch that is
    imported around Python's import system raises :class:`hotlap.errors.ScriptError` at the next import.
    """
    from hotlap.plan import read

    plan = read(Path(path))

    def imported(name: str, torch: ModuleType) -> None:
        if name != "torch":
            _intercept_sharding(name, torch)
            return
        interception = _intercepted(torch)
        _install_levers(interception.hooks, plan)
        _require_same_plan(torch, interception, plan)

    ImportWatch(("torch", *SHARDING), imported, _missed).start()
    return plan


def _boot_run(plan_path: str, watch_folder: str) -> None:
    from hotlap.plan import EMPTY, read

    plan = read(Path(plan_path)) if plan_path else EMPTY
    if not plan.settings and not watch_folder:
        return

    def imported(name: str, torch: ModuleType) -> None:
        if name != "torch":
            _intercept_sharding(name, torch)
            return
        with _without_collecting():
            interception = _intercepted(torch)
            if watch_folder:  # first, so that the work of levers inside a phase is timed in it
                from hotlap.runtime.watch.watcher import RowFile, Watcher

                Watcher(interception, RowFile(Path(watch_folder)))
        _install_levers(interception.hooks, plan)
        if plan.settings:
            _require_same_plan(torch, interception, plan)

    _watch(("torch", *SHARDING), imported)


def _intercept_sharding(name: str, module: ModuleType) -> None:
    """Patch a module that shares models; before torch is intercepted, that patches what is loaded by then."""
    if name in SHARDING and (interception := active()) is not None:
        interception.intercept_sharding(name, module)


def _watch(names: tuple[str, ...], announced: Callback) -> None:
    """Watch imports in a process that must end if hotlap misses one."""

    def begins(name: str) -> None:
        with FailureEndsProcess():
            if name == "torch":
                presence.note(presence.IMPORTING)

    def guarded(name: str, module: ModuleType) -> None:
        with FailureEndsProcess():
            announced(name, module)
            if name == "torch":
                presence.note(presence.TORCH)

    def missed(name: str, module: ModuleType) -> None:
        with FailureEndsProcess():
            _missed(name, module)

    watch = ImportWatch(names, guarded, missed, begins)
    watch.start()
    # Registered first and so called last: imports of other exit functions are seen too.
    atexit.register(watch.look)


def _missed(name: str, module: ModuleType) -> None:
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    by = f" by {type(loader).__name__}" if loader is not None else ""
    raise ScriptError(
        f"{name} was loaded{by} around Python's import system, so hotlap had no part in it.",
        remedy=f"Use an import statement for {name}, or run the script without hotlap.",
    )


def _install_levers(hooks: Hooks, plan: Plan) -> None:
    from hotlap.levers.api import find

    for setting in plan.settings:
        find(setting.lever).install(hooks, setting)


def _require_same_plan(torch: ModuleType, interception: Interception, plan: Plan) -> None:
    from hotlap.runtime.same_plan import require_same_plan

    require_same_plan(torch, interception.patches.replace, plan)


def _intercepted(torch: ModuleType) -> Interception:
    from hotlap.runtime.interception import Interception

    interception = Interception(Hooks(torch=torch))
    interception.install()
    _active.append(interception)
    return interception


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Torch has just created very many objects; a garbage collection triggered by our few imports would visit all of
    them and take longer than the imports."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _boot_trial() -> None:
    from hotlap.runtime import child_paths, connections, silenced  # of no use to `hotlap run`

    run_directory = Path(_variable("HOTLAP_RUN_DIRECTORY"))
    presence.begin(run_directory)
    assignment = _read_assignment(Path(_variable("HOTLAP_ASSIGNMENT")))
    address = _variable("HOTLAP_SOCKET")
    redirection = layered = None
    silencer = silenced.Silencer(run_directory / "trackers")
    watched: tuple[str, ...] = ("torch", *SHARDING, *silenced.WATCHED)
    if _redirects():
        from hotlap.runtime.files import WATCHED

        redirection = _redirection(assignment, run_directory)
        watched = (*watched, *WATCHED)
    else:
        from hotlap.runtime.layered import Layered

        layered = Layered()
        layered.install()
    child_paths.install()
    connections.watch_connections(run_directory)

    def imported(name: str, module: ModuleType) -> None:
        if redirection is not None:
            redirection.on_import(name, module)
        silencer.on_import(name, module)
        _intercept_sharding(name, module)
        if name == "torch":
            _begin_trial(module, assignment, run_directory)

    def _begin_trial(torch: ModuleType, assignment: Assignment, run_directory: Path) -> None:
        with _without_collecting():
            from hotlap.runtime import randomness
            from hotlap.runtime.instruments import api as instruments
            from hotlap.runtime.session import Session

        interception = _intercepted(torch)
        hooks = interception.hooks
        hooks.before_exit.append(lambda: hooks.notes.extend(silencer.notes))
        if layered is not None:
            hooks.before_exit.append(lambda: hooks.notes.extend(layered.notes))
        randomness.seed_everything(torch, assignment.seed)
        session = Session(assignment, address, run_directory, redirection)
        # The clock is hooked first and so is outermost: the work of the others inside a phase is timed in it.
        session.begin(interception)
        instruments.install(
            instruments.Place(interception, session.clock, session.finish_early, run_directory), assignment.instruments
        )
        _install_levers(hooks, assignment.plan)

    _watch(watched, imported)


def _variable(name: str) -> str:
    if name not in os.environ:
        raise ScriptError(
            f"the environment variable {name} is missing.", remedy="Pass the whole environment on in the script."
        )
    return os.environ[name]


def _read_assignment(path: Path) -> Assignment:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Assignment)
    except msgspec.DecodeError as error:
        raise HotlapError(
            f"the assignment {path} cannot be read: {error}.", remedy="Do not change hotlap while a study is running."
        ) from error


def _redirects() -> bool:
    """Whether writes have to be redirected in Python: in namespaces the kernel does more than that."""
    mode = os.environ.get("HOTLAP_PROTECTION", "fence")
    if mode not in get_args(ProtectionMode):
        raise HotlapError(
            f"HOTLAP_PROTECTION is {mode!r}.", remedy=f"It is one of {', '.join(get_args(ProtectionMode))}."
        )
    return mode != "namespaces"


def _redirection(assignment: Assignment, run_directory: Path) -> Redirection:
    from hotlap.runtime.files import redirect_writes

    checkout = assignment.workload.checkout
    trees = (Path(checkout.original), Path(checkout.copy)) if checkout is not None else ()
    own = Path(_variable("HOTLAP_SOCKET")).parent
    boundary = _boundary(own) if "HOTLAP_PROTECTION" in os.environ else None
    overlay = run_directory / "files"
    try:
        return redirect_writes(overlay, passthrough=(run_directory, own), protected=trees, boundary=boundary)
    except OSError as error:
        raise HotlapError(
            f"the folder for what the script writes, {overlay}, cannot be made: {error.strerror or error}.",
            remedy="Free some space there, or choose another study directory.",
        ) from error


def _boundary(folder: Path) -> Boundary:
    from hotlap.sandbox.boundary import FILE_NAME, Boundary

    try:
        return Boundary.read(folder)
    except (OSError, TypeError, ValueError) as error:
        raise HotlapError(
            f"what the run may change, {folder / FILE_NAME}, cannot be read: {error}.",
            remedy="Do not change hotlap's files while a study is running.",
        ) from error
