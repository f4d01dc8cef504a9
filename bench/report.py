"""Write a benchmark's result as Markdown and JSON, with the machine, the versions and the command."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("hotlap", "torch", "numpy", "transformers", "torchao", "onnxruntime", "openvino", "nncf", "litserve")


def versions() -> dict[str, str]:
    """Installed versions of what matters, and Python's."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def is_simulated() -> bool:
    """Whether the accelerator that torch sees here is that of ``tests/simulated``."""
    return "SIMULATED_DEVICE" in os.environ


def machine_line() -> str:
    """One line that names processor, the formats that it has instructions for (whether these are faster is measured by
    each search), cores, memory and accelerators."""
    from hotlap.machine.facts import machine_facts

    machine = machine_facts()
    accelerators = ", ".join(it.name for it in machine.accelerators) or "no accelerator"
    if is_simulated():
        accelerators = f"a simulated {accelerators}: there is no such device"
    gibibytes = machine.memory_bytes / 2**30
    formats = ", ".join(machine.native_dtypes)
    processor = f"{machine.processor} (instructions for {formats})"
    return f"{processor}, {machine.cores} cores, {gibibytes:.0f} GiB, {accelerators}"


def today() -> str:
    """The date of a measurement that ends now."""
    return datetime.now(UTC).date().isoformat()


def write(out: Path, *, title: str, command: str, text: str, data: Any) -> None:
    """Write ``out.md`` and ``out.json``."""
    out.parent.mkdir(parents=True, exist_ok=True)
    head = {
        "date": today(),
        "machine": machine_line(),
        "versions": versions(),
        "command": command,
    }
    named = ", ".join(f"{name} {version}" for name, version in head["versions"].items())  # type: ignore[attr-defined]
    lines = [
        f"# {title}",
        "",
        f"- machine: {head['machine']}",
        f"- versions: {named}",
        f"- date: {head['date']}",
        f"- command: `{command}`",
        "",
        text.rstrip(),
        "",
    ]
    out.with_suffix(".md").write_text("\n".join(lines), encoding="utf-8")
    out.with_suffix(".json").write_text(json.dumps({**head, "data": data}, indent=1) + "\n", encoding="utf-8")


def written(out: Path) -> Any:
    """The data that an earlier run left in ``out.json``; None where there was none."""
    path = out.with_suffix(".json")
    return json.loads(path.read_text(encoding="utf-8"))["data"] if path.exists() else None


def measured_again(names: Sequence[str]) -> list[str]:
    """The lines that say which results are newer than the others; none where all were measured together."""
    return ["", f"Measured again by the command above, the others by an earlier run: {', '.join(names)}."] * bool(names)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def command_line(module: str) -> str:
    """The command that is running, for the record. Paths are relative: where they begin is this machine's affair."""
    return shlex.join(["python", "-m", module, *(_relative(it) for it in sys.argv[1:])])


def _relative(word: str) -> str:
    option, equals, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
    return f"{option}{equals}{os.path.relpath(value)}" if Path(value).is_absolute() else word
