"""The energy that this machine's processors have used so far, from the kernel's power capping framework.

Source: the kernel's documentation, *Power Capping Framework* (``/sys/class/powercap``, RAPL). The counters cover the
whole machine: they do not show which process used the processors. On most systems only root can read them, and virtual
machines have none.
"""

from __future__ import annotations

import re
from pathlib import Path

_ZONES = "sys/class/powercap"
_PACKAGE = re.compile(r"package-\d+")
_MICROJOULES = 1e-6


class ProcessorEnergy:
    """Counts the joules of all processor packages below ``root`` since it was created.

    A counter wraps around every few minutes; this is detected if it is read more often.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._zones = _package_zones(root / _ZONES)
        self._last = {zone: _number(zone / "energy_uj") for zone in self._zones}
        self._microjoules = 0

    def joules(self) -> float | None:
        """Joules since this was created; None where a package cannot be read."""
        for zone in self._zones:
            before, now = self._last[zone], _number(zone / "energy_uj")
            if before is None or now is None:
                return None
            began_anew = now < before
            gone_through = (_number(zone / "max_energy_range_uj") or before) if began_anew else 0
            self._microjoules += gone_through + now - before
            self._last[zone] = now
        return self._microjoules * _MICROJOULES if self._zones else None


def _package_zones(folder: Path) -> list[Path]:
    """One zone per package: some machines list each package twice, by register and by memory (``-mmio``)."""
    found: dict[str, Path] = {}
    for zone in sorted(folder.glob("*")) if folder.is_dir() else ():
        name = _text(zone / "name")
        if _PACKAGE.match(name) and "-mmio" not in zone.name:
            found.setdefault(name, zone)
    return list(found.values())


def _number(path: Path) -> int | None:
    shown = _text(path)
    return int(shown) if shown.isascii() and shown.isdecimal() and len(shown) < 20 else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
