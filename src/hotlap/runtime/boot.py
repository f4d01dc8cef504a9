"""The entrance: what happens in a process of the user's when hotlap is to be there.

Three ways lead in: a trial (``HOTLAP_ASSIGNMENT``), ``hotlap run`` (``HOTLAP_PLAN``), and ``hotlap.apply``. The
last two install the plan's levers and nothing else: no clock, no redirection, no seed.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from hotlap.records import Assignment, LoaderRate, Plan
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.imports import ImportWatch

if TYPE_CHECKING:
    from hotlap.runtime.interception import Interception


_active: list[Interception] = []


def active() -> Interception | None:
    """The interception that is at work in this process, if any: to suspend it, and so to measure what it costs."""
    return _active[0] if _active else None


def boot() -> None:
    """Called by ``sitecustomize`` before the user's script begins."""
    if "HOTLAP_ASSIGNMENT" in os.environ:
        _boot_trial()
    elif "HOTLAP_PLAN" in os.environ:
        apply_plan(os.environ["HOTLAP_PLAN"])


def apply_plan(path: str | os.PathLike[str] = "hotlap.toml") -> Plan:
    """Switch on the levers of a plan file in this process, from torch's import on.

    Call it before the loaders, models and optimizers are made: what exists already stays as it is. Raises
    :class:`hotlap.errors.PlanError` when the plan cannot be read or names what does not exist.
    """
    from hotlap.plan import read

    plan = read(Path(path))
    ImportWatch(("torch",), lambda name, torch: _install_levers(_intercepted(torch).hooks, plan)).start()
    return plan


def _install_levers(hooks: Hooks, plan: Plan) -> None:
    from hotlap.levers.api import find

    for setting in plan.settings:
        find(setting.lever).install(hooks, setting)


def _intercepted(torch: ModuleType) -> Interception:
    from hotlap.runtime.interception import Interception

    interception = Interception(Hooks(torch=torch))
    interception.install()
    _active.append(interception)
    return interception


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Torch has just made very many objects; a collection that our few imports would set off walks through all of them
    and takes longer than the imports themselves."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _boot_trial() -> None:
    from hotlap.runtime import connections, silenced
    from hotlap.runtime.files import WATCHED, redirect_writes

    run_directory = Path(os.environ["HOTLAP_RUN_DIRECTORY"])
    assignment = msgspec.json.decode(Path(os.environ["HOTLAP_ASSIGNMENT"]).read_bytes(), type=Assignment)
    checkout = assignment.workload.checkout
    trees = (Path(checkout.original), Path(checkout.copy)) if checkout is not None else ()
    redirection = redirect_writes(run_directory / "files", passthrough=(run_directory,), protected=trees)
    connections.watch_connections(run_directory)
    silencer = silenced.Silencer(run_directory / "trackers")

    def imported(name: str, module: ModuleType) -> None:
        redirection.on_import(name, module)
        silencer.on_import(name, module)
        if name == "torch":
            _begin_trial(module, assignment, run_directory)

    def _begin_trial(torch: ModuleType, assignment: Assignment, run_directory: Path) -> None:
        with _without_collecting():
            from hotlap.runtime import comparing, randomness, replay, sweep
            from hotlap.runtime.session import Session

        interception = _intercepted(torch)
        hooks = interception.hooks
        hooks.before_exit.append(lambda: hooks.notes.extend(silencer.notes))
        randomness.seed_everything(torch, assignment.seed)
        session = Session(assignment, os.environ["HOTLAP_SOCKET"], run_directory, redirection)
        # The clock hangs on first and so stands outermost: what the others do inside a phase is timed in it.
        session.begin(interception)
        if assignment.replay:
            replay.replay_first_batches(hooks, assignment.replay_scale)
        comparing.prepare(hooks, assignment)
        if assignment.watch_numbers:
            from hotlap.runtime.not_finite.watch import NumbersWatch

            NumbersWatch(
                interception,
                session.clock,
                assignment.check_numbers_from,
                lambda bad_number: session.finish_early(bad_number=bad_number),
            )
        if assignment.loader_sweep:

            def finish(rates: tuple[LoaderRate, ...]) -> None:
                session.finish_early(loader_rates=rates)

            sweep.sweep_the_training_loader(hooks, assignment.loader_sweep, finish)
        _install_levers(hooks, assignment.plan)

    ImportWatch(("torch", *WATCHED, *silenced.WATCHED), imported).start()
