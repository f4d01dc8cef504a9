"""What ran on real hardware, from the results of ``bench.gpu`` and ``bench.findings --device``, and which rules found
something on the simulated device, from those of the latter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.device_lines.parts import Part

_SIMULATED = "simulated"


def ran_on_hardware(results: Path, parts: list[Part]) -> set[tuple[str, str]]:
    """Kind and name of all that ran there. Nothing, where ``results`` holds no result of an accelerator."""
    found: set[tuple[str, str]] = set()
    for data in _documents(results, "gpu*.json"):
        found |= set(_benchmarked(data))
    for data in _documents(results, "findings-gpu*.json"):
        done = [it for it in data["scripts"] if not it["trouble"]]
        found |= {("rule", rule) for it in done for rule in it["found"]}
        if done:  # every collector gave a result
            found |= {("evidence", it.name) for it in parts if it.kind == "evidence"}
    return found


def found_on_simulated(results: Path) -> set[tuple[str, str]]:
    """The rules that fired on the simulated device for causes that were planted: ``make device-findings``."""
    documents = _documents(results, "findings-simulated*.json", simulated=True)
    scripts = [it for data in documents for it in data["scripts"] if not it["trouble"]]
    return {("rule", rule) for it in scripts for rule in it["found"]}


def _documents(results: Path, pattern: str, *, simulated: bool = False) -> Iterator[Any]:
    for path in sorted(results.glob(pattern)):
        document = json.loads(path.read_text(encoding="utf-8"))
        if (_SIMULATED in document["machine"]) == simulated:
            yield document["data"]


def _benchmarked(data: Any) -> Iterator[tuple[str, str]]:
    """Levers of the plans that were timed, phases with time of their own, and rates that were measured."""
    for name, rate in (data["machine"] or {}).get("ceilings", {}).items():
        if rate:
            yield "ceiling", name
    for result in data["naive"].values():
        for setting in result["plan"]["settings"]:
            yield "lever", setting["lever"]
        for account in (result["before"], result["after"]):
            for phase, seconds in (account or {}).get("phases", ()):
                if seconds > 0:
                    yield "phase", phase.replace("_", "-")
