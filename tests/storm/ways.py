"""The ways in which a run is ended from outside. Each acts at once and returns which processes must then be gone."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from storm.processes import Identity, descendants, kill
from storm.scene import Scene, Trial

_LONGEST_WAIT_SECONDS = 1.5
_START_UP_SECONDS = 1.2
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Doomed: TypeAlias = frozenset[Identity] | None
"""The processes that must go; None for all."""


class NothingToKillError(Exception):
    """The study ended, or never got to where it was to be hit."""


@dataclass(frozen=True, slots=True)
class Way:
    """``swept``: something that could clean up survives, so that no later hotlap is needed for it."""

    name: str
    strike: Callable[[Scene, random.Random], Doomed]
    swept: bool
    started: bool = True


def _trial(scene: Scene, dice: random.Random) -> Trial:
    trials: list[Trial] = []
    if not scene.wait_for(lambda: trials.extend(scene.trials()) or trials):
        raise NothingToKillError(scene.output())
    return dice.choice(trials)


def _shoot(dice: random.Random, *numbers: int) -> None:
    order = list(numbers)
    dice.shuffle(order)
    kill(order)


def _whole(trial: Trial) -> frozenset[Identity]:
    below = [it.identity for it in descendants(trial.launcher.number)]
    return frozenset({trial.launcher.identity, *below})


def _controller(scene: Scene, dice: random.Random) -> Doomed:
    kill([scene.controller.pid])
    return None


def _script(scene: Scene, dice: random.Random) -> Doomed:
    trial = _trial(scene, dice)
    doomed = _whole(trial)
    kill([trial.script.number])
    return doomed


def _launcher(scene: Scene, dice: random.Random) -> Doomed:
    trial = _trial(scene, dice)
    doomed = _whole(trial)
    kill([trial.launcher.number])
    return doomed


def _second(scene: Scene, dice: random.Random) -> Doomed:
    trial = _trial(scene, dice)
    doomed = _whole(trial)
    kill([trial.second.number])
    return doomed


def _watchdog(scene: Scene, dice: random.Random) -> Doomed:
    """It must not matter by itself, nor when the controller is killed a little later."""
    kill(scene.watchdog())
    time.sleep(dice.uniform(0.0, 0.3))
    kill([scene.controller.pid])
    return None


def _controller_and_watchdog(scene: Scene, dice: random.Random) -> Doomed:
    _shoot(dice, scene.controller.pid, *scene.watchdog())
    return None


def _controller_and_launcher(scene: Scene, dice: random.Random) -> Doomed:
    launchers = {it.launcher.number for it in scene.trials()}
    _shoot(dice, scene.controller.pid, *launchers)
    return None


def _all_but_the_script(scene: Scene, dice: random.Random) -> Doomed:
    launchers = {it.launcher.number for it in scene.trials()}
    _shoot(dice, scene.controller.pid, *scene.watchdog(), *launchers)
    return None


def _group(scene: Scene, dice: random.Random) -> Doomed:
    with suppress(ProcessLookupError):
        os.killpg(scene.controller.pid, signal.SIGKILL)
    return None


def _signal(scene: Scene, dice: random.Random) -> Doomed:
    scene.controller.send_signal(dice.choice(_SIGNALS))
    return None


def _power(scene: Scene, dice: random.Random) -> Doomed:
    """All at once, and what was not yet on the disk is lost: the journal ends somewhere."""
    for it in scene.alive():
        with suppress(ProcessLookupError):
            os.kill(it.number, signal.SIGSTOP)
    while alive := scene.alive():
        kill(it.number for it in alive)
    scene.controller.wait()
    study = scene.study()
    journal = None if study is None else study / "journal.jsonl"
    if journal is not None and journal.exists():
        header = len(journal.read_bytes().partition(b"\n")[0]) + 1
        os.truncate(journal, dice.randint(min(header, journal.stat().st_size), journal.stat().st_size))
    return None


def _while_frozen(scene: Scene, dice: random.Random) -> Doomed:
    if not scene.wait_for(lambda: any(it.frozen() for it in scene.trials())):
        raise NothingToKillError(scene.output())
    _shoot(dice, scene.controller.pid, *(scene.watchdog() if dice.random() < 0.5 else []))
    return None


def _start_up(scene: Scene, dice: random.Random) -> Doomed:
    """Before the first trial: the study is created, ways of isolating are tried, the interpreter is queried."""
    time.sleep(dice.uniform(0.0, _START_UP_SECONDS))
    others = [it.number for it in scene.alive() if it.number != scene.controller.pid]
    _shoot(dice, scene.controller.pid, *(it for it in others if dice.random() < 0.3))
    return None


WAYS = (
    Way("controller", _controller, swept=True),
    Way("the script's first process", _script, swept=True),
    Way("launcher", _launcher, swept=True),
    Way("the launcher's child (pid 1, or the keeper)", _second, swept=True),
    Way("watchdog, then controller", _watchdog, swept=False),
    Way("controller and watchdog", _controller_and_watchdog, swept=False),
    Way("controller and launchers", _controller_and_launcher, swept=True),
    Way("controller, watchdog and launchers", _all_but_the_script, swept=False),
    Way("the controller's process group", _group, swept=True),
    Way("SIGTERM, SIGINT or SIGHUP to the controller", _signal, swept=True),
    Way("the machine's power", _power, swept=False),
    Way("while arms are frozen", _while_frozen, swept=False),
    Way("during the start-up", _start_up, swept=False, started=False),
)


def wait_a_moment(way: Way, scene: Scene, dice: random.Random) -> None:
    """Wait until the way can act, and then for a random time. Raises :class:`NothingToKillError`."""
    if way.started:
        _trial(scene, dice)
        time.sleep(dice.uniform(0.0, _LONGEST_WAIT_SECONDS))
