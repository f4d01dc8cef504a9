"""The machine, or the nodes of a cluster, on one screen: what it can do, what is in the way, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hotlap.records import CollectiveRates, Machine
from hotlap.render import text
from hotlap.render.blocks import Tone
from hotlap.render.brief import Brief, Next, Row
from hotlap.render.cluster import Nodes, node_line, remarks_on, troubles
from hotlap.render.doctor import Remark, all_remarks
from hotlap.render.isolation import isolation_ability
from hotlap.render.machine import machine_line
from hotlap.render.presentable import presentable

_WORTHWHILE = 1.1
"""A number format that is not faster than float32 by this much is no gain."""

_WHOLE = "every fact and rate, and the isolation"


def doctor_summary(
    machine: Machine, remarks: Sequence[Remark] = (), collectives: CollectiveRates | None = None
) -> Brief:
    """What this machine can do and cannot, what is in the way, and what to do next."""
    machine = presentable(machine)
    remarks = all_remarks(machine, remarks)
    processes = collectives.rates[0].processes if collectives is not None and collectives.rates else 0
    asked = f" --processes {processes}" if processes else ""
    in_the_way = [it for it in remarks if it.level != "note"]
    tone, sentence = _answer(machine, remarks)
    return Brief(
        top=f"hotlap doctor{asked}",
        tone=tone,
        sentence=sentence,
        rows=(
            Row("Machine", (f"{machine_line(machine)}.",), most=3, least=2),
            Row("Can", tuple(_able(machine)), is_list=True, most=7, least=2),
            Row("Cannot", tuple(_unable(machine)), is_list=True, most=5, least=2),
            Row("Exchange", tuple(_exchange(collectives)), is_list=True, most=4, least=3),
            Row("In the way", tuple(map(_said, in_the_way)), is_list=True, most=12, least=4, style="yellow"),
            Row("To know", tuple(_said(it) for it in remarks if it.level == "note"), is_list=True, most=8, least=2),
        ),
        commands=(
            *([Next(f"hotlap doctor{asked}", "again, after a change")] if in_the_way else []),
            *([Next("hotlap profile train.py", "why a script is slow here")] if tone != "bad" else []),
            Next(f"hotlap doctor --full{asked}", _WHOLE),
        ),
    )


def cluster_summary(nodes: Nodes, address: str = "") -> Brief:
    """The nodes, which of them are slow or different, and what to do next."""
    nodes = [(text.one_line(name), presentable(machine)) for name, machine in nodes]
    found = tuple(troubles(nodes))
    where = f" --address {text.shell_word(address)}" if address else ""
    sentence = (
        f"{text.count(len(found), 'remark')} on {text.count(len(nodes), 'node')}: use nodes that are alike, and none "
        "that is slow."
        if found
        else " ".join(remarks_on(nodes))
    )
    return Brief(
        top=f"hotlap doctor --cluster{where}",
        tone="neutral" if found else "good",
        sentence=sentence,
        rows=(
            Row("Nodes", tuple(node_line(nodes, name) for name, _ in nodes), is_list=True, most=10, least=3),
            Row("In the way", found, is_list=True, most=10, least=3, style="yellow"),
        ),
        commands=(
            Next(f"hotlap tune --executor ray{where} train.py", "replicates on all free nodes"),
            Next(f"hotlap doctor --cluster --full{where}", "the rates of each node, side by side"),
        ),
    )


def _answer(machine: Machine, remarks: Sequence[Remark]) -> tuple[Tone, str]:
    levels = [it.level for it in remarks]
    problems, warnings = levels.count("problem"), levels.count("warning")
    isolated = machine.protection is None or machine.protection.mode != "none"
    if problems:
        return "bad", f"Solve {text.count(problems, 'problem')} before you train or measure on this machine."
    if not _has_torch(machine):
        return "neutral", "hotlap's own environment has no torch: scripts need another one."
    if not isolated:
        return "neutral", "Scripts can be trained here, but trials cannot be isolated: they need `--unprotected`."
    if warnings:
        return "neutral", f"Scripts can be trained and measured here, with {text.count(warnings, 'warning')}."
    return "good", "No problems found: scripts can be trained and measured here."


def _able(machine: Machine) -> Iterator[str]:
    protection = machine.protection
    if protection is not None and protection.mode != "none":
        yield f"isolate trials ({protection.mode}): {isolation_ability(protection.mode)}"
    for device, rates in _rates_by_device(machine).items():
        if "float32" in rates:
            yield f"multiply matrices in float32 at {text.rate(rates['float32'], 'FLOP')} on {device}"
        for dtype, rate in rates.items():
            if _gain(rates, dtype) >= _WORTHWHILE:
                yield f"do so in {dtype} at {text.rate(rate, 'FLOP')}, {_gain(rates, dtype):.1f} times as fast"
    memory = machine.ceilings.memory_bytes_per_second
    if memory is not None:
        yield f"read and write memory at {text.rate(memory, 'B')}"
    if machine.accelerators and machine.suspends_devices:
        yield "move the device memory of waiting trials to the host, so that trials need not fit side by side"


def _unable(machine: Machine) -> Iterator[str]:
    if not _has_torch(machine):
        yield "run a script, unless an environment with torch is active or `--python PATH` names one"
    if machine.protection is not None and machine.protection.mode == "none":
        yield f"isolate trials: {isolation_ability('none')}"
    if not machine.accelerators:
        yield "train on an accelerator: none was found"
    for device, rates in _rates_by_device(machine).items():
        for dtype, rate in rates.items():
            if dtype != "float32" and _gain(rates, dtype) < _WORTHWHILE:
                yield f"gain from {dtype} on {device}: its products reach only {text.rate(rate, 'FLOP')}"


def _exchange(collectives: CollectiveRates | None) -> Iterator[str]:
    for it in collectives.rates if collectives is not None else ():
        bandwidth = f"{text.size(it.bytes_per_second)}/s (± {100 * it.bandwidth_error:.0f} %)"
        yield f"{it.name} by {text.one_line(it.backend)}: {text.duration(it.latency_seconds)}, then {bandwidth}"


def _said(it: Remark) -> str:
    return f"{text.sentence(it.text)} {text.sentence(it.remedy)}".rstrip()


def _rates_by_device(machine: Machine) -> Mapping[str, Mapping[str, float]]:
    """The rates of products by number format, of the devices that training would use."""
    found: dict[str, dict[str, float]] = {}
    for key, rate in machine.ceilings.matmul_flops_per_second:
        device, _, dtype = text.one_line(key).partition(":")
        found.setdefault(device, {})[dtype] = rate
    return {device: rates for device, rates in found.items() if device != "cpu" or not machine.accelerators}


def _gain(rates: Mapping[str, float], dtype: str) -> float:
    """How many times as fast products are in that format as in float32; 0 where that is not known, or float32."""
    full = rates.get("float32", 0.0)
    return rates[dtype] / full if full > 0 and dtype != "float32" else 0.0


def _has_torch(machine: Machine) -> bool:
    return "torch" in dict(machine.library_versions)
