"""The environment of a process with a simulated device, and its scenarios."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from simulated.library import HERE, built
from simulated.profile import COUNT, NAME, SCENARIO, chosen_by, read_profile

SITE = HERE / "site"


@dataclass(frozen=True, slots=True)
class SimulatedDevice:
    """Devices of one kind, which all processes with these ``variables`` share. ``folder`` has their state."""

    folder: Path
    variables: dict[str, str]

    def say(self, **facts: object) -> None:
        """Change what the driver reports from now on; None for what it does not support any more."""
        path = self.folder / "driver.txt"
        known = dict(line.split(" ", 1) for line in path.read_text(encoding="utf-8").splitlines())
        known |= {name: str(value) for name, value in facts.items() if value is not None}
        path.write_text("".join(f"{name} {value}\n" for name, value in known.items() if facts.get(name, 0) is not None))


def simulated_device(kind: str, folder: Path, build: Path, *, count: int = 1, scenario: str = "") -> SimulatedDevice:
    """Devices of a kind; ``scenario`` is TOML with what differs from its profile. Raises
    :class:`simulated.library.NoCompiler`."""
    libraries = built(build)
    folder.mkdir(parents=True, exist_ok=True)
    profile = replace(read_profile(kind), devices=count)
    (folder / "driver.txt").write_text("".join(f"{name} {value}\n" for name, value in profile.driver_facts().items()))
    variables = {
        NAME: kind,
        COUNT: str(count),
        "SIMULATED_BUILD": str(build),
        "SIMULATED_STATE": str(folder / "state"),
        "SIMULATED_DRIVER": str(folder / "driver.txt"),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(libraries), os.environ.get("LD_LIBRARY_PATH", "")])),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH", "")])),
    }
    if scenario:
        (folder / "scenario.toml").write_text(scenario, encoding="utf-8")
        variables[SCENARIO] = str(folder / "scenario.toml")
    device = SimulatedDevice(folder, variables)
    if (slice_ := chosen_by(variables)).slice_uuid:
        facts = {"uuid": slice_.slice_uuid, "name": slice_.name, "memory_bytes": int(slice_.memory_bytes)}
        device.say(**{f"slice_{name}": it for name, it in facts.items()})
        variables["CUDA_VISIBLE_DEVICES"] = slice_.slice_uuid
    return device
