"""What a simulated device is: a file for each kind, and what a scenario changes of it.

``[device] slower = 50`` in a scenario makes a device, its link and its host so many times as slow: the ratios stay, and
simulated seconds take no more than real ones.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("profiles")
NAME, COUNT, SCENARIO = "SIMULATED_DEVICE", "SIMULATED_DEVICES", "SIMULATED_SCENARIO"


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One kind of device. ``rates`` are the compiled device's own fields, by name. ``slice_uuid`` is that of a slice of
    the device, beginning with ``MIG-``, where name and memory are the slice's."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: float
    context_bytes: float
    power_watts: float
    clock_mhz: int
    link_generation: int
    link_width: int
    devices: int = 1
    slice_uuid: str = ""
    rates: dict[str, float] = field(default_factory=dict)

    def values(self) -> dict[str, float]:
        """What the compiled device is set to."""
        own = {"memory_bytes": self.memory_bytes, "context_bytes": self.context_bytes, "devices": self.devices}
        return {**own, **self.rates}

    def driver_facts(self) -> dict[str, object]:
        """The driver's values, by the names of its file."""
        major, minor = self.capability
        return {
            "driver": "570.86.15",
            "devices": self.devices,
            "name": self.name,
            "memory_bytes": int(self.memory_bytes),
            "capability_major": major,
            "capability_minor": minor,
            "power_limit_milliwatts": int(1000 * self.power_watts),
            "power_milliwatts": int(600 * self.power_watts),
            "clock_megahertz": self.clock_mhz,
            "throttle_reasons": 0,
            "link_generation": self.link_generation,
            "link_width": self.link_width,
        }


def read_profile(name: str) -> DeviceProfile:
    """A profile by its name, or by the path of its file. Raises :class:`FileNotFoundError`."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    return DeviceProfile(**{**values, "capability": tuple(values["capability"])})


def chosen_profile() -> DeviceProfile:
    """The profile that this process's environment selects."""
    return chosen_by(os.environ)


def chosen_by(environment: Mapping[str, str]) -> DeviceProfile:
    """The profile that an environment selects."""
    profile = replace(read_profile(environment[NAME]), devices=int(environment.get(COUNT) or 1))
    if not (scenario := environment.get(SCENARIO)):
        return profile
    values: dict[str, Any] = tomllib.loads(Path(scenario).read_text(encoding="utf-8")).get("device", {})
    rates = slowed(profile.rates, values.pop("slower", 1.0)) | values.pop("rates", {})
    return replace(profile, rates=rates, **values)


def slowed(rates: dict[str, float], factor: float) -> dict[str, float]:
    """Costs so many times as high, and rates so many times as low."""
    return {name: it * factor if name.endswith("_nanoseconds") else it / factor for name, it in rates.items()}
