"""One kill of a storm: a running study is killed, and everything is checked that could remain or be harmed."""

from __future__ import annotations

import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from storm.processes import mounted_below, parent_of_orphans
from storm.scene import Scene
from storm.ways import WAYS, Way, wait_a_moment

GONE_SECONDS = 5.0
_END_SECONDS = 200.0
_POLL_SECONDS = 0.02
_PRINTED_CHARACTERS = 3000


@dataclass(slots=True)
class Kill:
    """The result of one kill. ``gone_seconds`` is when the last process was gone that had to go; ``troubles`` are
    sentences, none where all is well."""

    way: str
    mode: str
    seed: int
    gone_seconds: float | None = None
    troubles: list[str] = field(default_factory=list)


def kill_once(
    way: Way, mode: str, seed: int, top: Path, *, resumed: bool = True, limit_seconds: float = GONE_SECONDS
) -> Kill:
    """Start a study in folders below ``top``, which is made for it, kill it at a moment drawn from ``seed``, and go on
    with it where it is to be ``resumed``. What has to go may take ``limit_seconds``."""
    dice = random.Random(seed)
    found = Kill(way.name, mode, seed)
    with parent_of_orphans():
        scene = Scene(top, mode)
        scene.start()
        try:
            wait_a_moment(way, scene, dice)
            doomed = way.strike(scene, dice)
            found.gone_seconds = scene.seconds_until_gone(doomed, limit_seconds)
            if doomed is not None:
                _end_survivor(scene, found)
            _look(scene, found, limit_seconds if way.swept else None)
            if resumed:
                _resume(scene, found, limit_seconds)
        finally:
            scene.end()
    if found.troubles:
        found.troubles.append(scene.output()[-_PRINTED_CHARACTERS:])
    return found


def kill_in_own_folder(
    way: int, mode: str, seed: int, resumed: bool = True, limit_seconds: float = GONE_SECONDS
) -> Kill:
    """The same with a way by its number, in a folder that is made for it; its name is short, as the paths of sockets
    are bounded."""
    with tempfile.TemporaryDirectory(prefix="st-") as folder:
        return kill_once(WAYS[way], mode, seed, Path(folder) / "s", resumed=resumed, limit_seconds=limit_seconds)


def _end_survivor(scene: Scene, found: Kill) -> None:
    """The controller survived the loss of one arm: it goes on, until it is told to end."""
    if scene.controller.poll() is not None:
        found.troubles.append(f"the controller ended with {scene.controller.returncode} though only an arm was hit")
        return
    scene.controller.terminate()
    if scene.seconds_until_gone(None, _END_SECONDS) is None:
        found.troubles.append("it did not end by SIGTERM")


def _look(scene: Scene, found: Kill, swept_within_seconds: float | None) -> None:
    """Just after the kill; None if no process is left that could clean up."""
    if found.gone_seconds is None:
        stayed = "; ".join(f"{it.number} {it.state} {it.command}" for it in scene.alive())
        found.troubles.append(f"processes stayed: {stayed}")
        scene.end()
    _say(found, "mounted", mounted_below(scene.top))
    _say(found, "changed", scene.changes())
    if swept_within_seconds is not None:
        deadline = time.monotonic() + swept_within_seconds
        while scene.left() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        _say(found, "left though somebody could tidy up", scene.left())
    code, said = scene.report()
    if code != 0 and ("Traceback" in said or _has_journal(scene)):
        found.troubles.append(f"the report ended with {code}: {said}")


def _has_journal(scene: Scene) -> bool:
    """Whether the study got as far as its first line."""
    study = scene.study()
    return study is not None and (study / "study.json").exists()


def _resume(scene: Scene, found: Kill, limit_seconds: float) -> None:
    """Go on with the study, or begin another where there is none yet. Then nothing remains."""
    study = scene.study()
    if study is None or not _has_journal(scene):
        return
    scene.start("--resume", str(study))
    try:
        code: int | None = scene.controller.wait(timeout=_END_SECONDS)
    finally:
        if scene.controller.poll() is None:
            scene.end()
    if code != 0:
        found.troubles.append(f"resuming it ended with {code}")
    if scene.seconds_until_gone(None, limit_seconds) is None:
        found.troubles.append(f"resuming it left processes: {[it.command for it in scene.alive()]}")
    _say(found, "changed by resuming it", scene.changes())
    _say(found, "left after it was resumed", scene.left())
    code, said = scene.report()
    if code != 0:
        found.troubles.append(f"the report of the resumed study ended with {code}: {said}")


def _say(found: Kill, what: str, things: list[str]) -> None:
    if things:
        found.troubles.append(f"{what}: {', '.join(things)}")


def plan(kills: int, seed: int) -> list[tuple[Way, int]]:
    """This many kills, the ways in turn, each with a seed of its own."""
    return [(WAYS[number % len(WAYS)], seed + number) for number in range(kills)]
