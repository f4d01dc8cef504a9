"""The machine: its hardware, measured rates and problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from hotlap.records import Accelerator, CollectiveRates, Machine
from hotlap.render import text
from hotlap.render.isolation import isolation_facts
from hotlap.render.layout import Trimmed, indented, paragraphs
from hotlap.render.machine import ceiling_rates
from hotlap.render.presentable import presentable

_WIDEST = 100
_NOTABLE_LOAD = 0.5
_LEVELS = {"problem": "bold red", "warning": "yellow", "note": "cyan"}


@dataclass(frozen=True, slots=True)
class Remark:
    """A problem of the machine: its severity, what it is, and what to do about it."""

    level: Literal["problem", "warning", "note"]
    text: str
    remedy: str = ""


def doctor(
    machine: Machine, remarks: Sequence[Remark] = (), collectives: CollectiveRates | None = None
) -> RenderableType:
    """The machine in parts: facts, measured rates, those of collectives if they were measured, how trials are isolated
    on it, and problems to fix."""
    machine = presentable(machine)
    pieces: list[RenderableType] = [Text("Machine", style="bold"), _pairs(_facts(machine))]
    for it in machine.accelerators:
        pieces += [Text(), Text(text.one_line(it.name), style="bold"), _pairs(_accelerator(it))]
    rates = list(ceiling_rates(machine))
    if rates:
        pieces += [Text(), Text("Rates measured here", style="bold"), _pairs(rates)]
    if collectives is not None and collectives.rates:
        pieces += [Text(), Text(_between(collectives), style="bold"), _pairs(_collectives(collectives))]
    if machine.protection is not None:
        pieces += [Text(), Text("Isolation of trials", style="bold"), _pairs(isolation_facts(machine.protection))]
    pieces += [Text(), *_advice(all_remarks(machine, remarks))]
    return Trimmed(Constrain(Group(*pieces), _WIDEST))


def all_remarks(machine: Machine, remarks: Sequence[Remark]) -> list[Remark]:
    """The remarks, what the machine's own warnings add to them, and what makes its rates unreliable."""
    known = {text.sentence(it.text) for it in remarks}
    doubts = [Remark("warning", why) for _, why in machine.ceilings.doubts]
    load = machine.ceilings.other_load
    if load >= _NOTABLE_LOAD and not doubts:  # which name it too
        cores = f"{load:.1f} cores"
        busy = f"Other programs kept {cores} busy while the rates were measured, which may be too low"
        doubts.append(Remark("warning", busy, "Wait until the machine is idle, and measure again"))
    warnings = [Remark("warning", it) for it in machine.warnings]
    return [*remarks, *(it for it in (*warnings, *doubts) if text.sentence(it.text) not in known)]


def _advice(remarks: Sequence[Remark]) -> Iterator[RenderableType]:
    if not remarks:
        yield Text("No problems found.", style="green")
        return
    yield Text("What to know", style="bold")
    for it in remarks:
        yield indented(Text(it.level, style=_LEVELS[it.level]).append(f"  {text.sentence(it.text)}", style="default"))
        yield from paragraphs([text.sentence(it.remedy)] if it.remedy else [], columns=4)


def _facts(machine: Machine) -> Iterator[tuple[str, str]]:
    yield "processor", text.one_line(machine.processor) or "unknown"
    visible = f", {machine.visible_cores} visible" if machine.visible_cores > machine.cores else ""
    yield "cores", f"{machine.cores} available{visible}, {machine.physical_cores} physical"
    if machine.memory_bytes:
        yield "memory", text.size(machine.memory_bytes)
    if machine.shared_memory_bytes:
        yield "shared memory", text.size(machine.shared_memory_bytes)
    yield "native dtypes", ", ".join(map(text.one_line, machine.native_dtypes)) or "none found"
    if machine.transparent_huge_pages:
        yield "huge pages", text.one_line(machine.transparent_huge_pages)
    if machine.system:
        yield "system", text.one_line(machine.system)
    if machine.python_version:
        yield "Python", text.one_line(machine.python_version)
    for name, version in machine.library_versions:
        yield text.one_line(name), text.one_line(version)
    for name, setting in machine.environment:
        yield text.one_line(name), text.one_line(setting)
    if not machine.accelerators:
        yield "accelerator", "none found"


def _between(collectives: CollectiveRates) -> str:
    first = collectives.rates[0]
    return f"Exchange between {first.processes} processes ({text.one_line(first.backend)})"


def _collectives(collectives: CollectiveRates) -> Iterator[tuple[str, str]]:
    """Latency and bandwidth with their standard errors, and how far the measured times are off that line."""
    for it in collectives.rates:
        latency = f"{text.duration(it.latency_seconds)} (± {text.duration(it.latency_error_seconds)})"
        bandwidth = f"{text.size(it.bytes_per_second)}/s (± {100 * it.bandwidth_error:.0f} %)"
        yield it.name, f"{latency}, then {bandwidth}; measured times differ by up to {100 * it.largest_error:.0f} %"
    if collectives.hidden_share is not None:
        yield "next to computation", f"{100 * collectives.hidden_share:.0f} % of the shorter of both is hidden"


def _accelerator(it: Accelerator) -> Iterator[tuple[str, str]]:
    yield "kind", " ".join(filter(None, (text.one_line(it.kind), text.one_line(it.capability))))
    yield "memory", text.size(it.memory_bytes)
    yield "native dtypes", ", ".join(map(text.one_line, it.native_dtypes)) or "none found"
    if it.driver:
        yield "driver", text.one_line(it.driver)
    if it.pcie:
        yield "PCIe", text.one_line(it.pcie)
    if it.power_limit_watts is not None:
        yield "power limit", f"{it.power_limit_watts:.0f} W"
    if it.throttled:
        yield "held down by", ", ".join(map(text.one_line, it.throttled))
    if it.other_processes:
        yield "also used by", text.count(it.other_processes, "other process", "other processes")


def _pairs(pairs: Sequence[tuple[str, str]] | Iterator[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, fact in pairs:
        table.add_row(Text(f"  {name}"), Text(fact))
    return table
