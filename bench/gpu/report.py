"""The result as Markdown and as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bench.gpu.measuring import FalseAlarms
from bench.gpu.naive import Naive, Result
from bench.report import table
from hotlap.plan import describe
from hotlap.records import PHASES, STEP_PHASES, CompileReport, Estimate, GraphBreak, Machine, PhaseAccount

BREAKS_SHOWN = 8


@dataclass(slots=True)
class Findings:
    """All that is known so far; ``failures`` says of each part without a result why."""

    machine: Machine | None = None
    hooks: list[dict[str, float | str | bool]] | None = None
    false_alarms: FalseAlarms | None = None
    naive: dict[str, tuple[Naive, Result]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def markdown(found: Findings) -> str:
    """The report below its head."""
    parts = [
        _naive(found.naive),
        _hooks(found.hooks) if found.hooks else "",
        _false_alarms(found.false_alarms) if found.false_alarms else "",
        _machine(found.machine) if found.machine else "",
        _failures(found.failures),
        "Seconds for each part: " + ", ".join(f"{name} {seconds:.0f}" for name, seconds in found.seconds.items()) + ".",
    ]
    return "\n\n".join(it for it in parts if it)


def data(found: Findings) -> dict[str, Any]:
    """The same for machines."""
    return {
        "machine": msgspec.to_builtins(found.machine),
        "hooks": found.hooks,
        "false_alarms": msgspec.to_builtins(found.false_alarms),
        "naive": {
            name: {"script": naive.script.name, "arguments": naive.arguments, **_told(result)}
            for name, (naive, result) in found.naive.items()
        },
        "failures": found.failures,
        "seconds": found.seconds,
    }


def _told(result: Result) -> dict[str, Any]:
    """The result without the folders of the machine, which say nothing to anybody else."""
    told: dict[str, Any] = msgspec.to_builtins(result)
    for kind in ("graph_breaks", "recompiles", "fallbacks"):
        for it in (told["compile"] or {}).get(kind, ()):
            _, _, inside = it["file"].rpartition("site-packages/")
            it["file"] = inside if "site-packages/" in it["file"] else it["file"].rpartition("/")[2]
    return told


def interval(it: Estimate) -> str:
    """A ratio with its interval."""
    return f"{it.value:.3f} ({it.low:.3f} to {it.high:.3f})"


def _naive(results: Mapping[str, tuple[Naive, Result]]) -> str:
    if not results:
        return ""
    rows = [
        [
            name,
            ", ".join(describe(it) for it in result.plan.settings) or "nothing",
            interval(result.speed.speedup) if result.speed else "not measured",
            _verdict(result),
            result.quality.text if result.quality else "not checked",
            _memory(result),
        ]
        for name, (_, result) in results.items()
    ]
    lines = [
        "## Naive against tuned",
        "",
        "Fresh launches of the script, the script again and the plan, taking turns block by block; the speedup with",
        "its 95 % interval over replicates.",
        "",
        table(["script", "plan", "speedup", "verdict", "same losses?", "memory"], rows),
    ]
    for name, (naive, result) in results.items():
        lines += ["", f"### {name}", "", *_details(naive, result)]
    return "\n".join(lines)


def _verdict(result: Result) -> str:
    if result.speed is None:
        return "no plan"
    if not result.speed.baseline_agrees:
        return "no claim: the baseline differed from its repeat"
    return result.speed.verdict


def _memory(result: Result) -> str:
    before, after = (it / 2**30 for it in result.peak_bytes)
    return f"{before:.2f} to {after:.2f} GiB" if before else ""


def _details(naive: Naive, result: Result) -> list[str]:
    lines = [
        f"- `python {' '.join((naive.script.name, *naive.arguments))}`",
        f"- the plan: {result.how}; {result.seconds:.0f} s in all",
    ]
    if result.speed:
        replicates = f"{result.speed.replicates} replicates of {result.speed.rounds} rounds"
        lines.append(
            f"- {replicates}; the baseline against its repeat: {interval(result.speed.baseline_speedup)}; an effect of "
            f"{result.speed.smallest_detectable:.1%} could have been seen"
            if result.speed.baseline_speedup
            else f"- {replicates}"
        )
    lines += [f"- {it}" for it in (_account("before", result.before), _account("after", result.after)) if it]
    lines += [f"- {it}" for it in result.remarks]
    if result.compile and result.compile.graphs:
        lines += _compiled(result.compile)
    return lines


def _account(when: str, it: PhaseAccount | None) -> str:
    if it is None or it.wall <= 0:
        return ""
    shares = ", ".join(f"{PHASES[phase].title} {it.seconds_in(phase) / it.wall:.0%}" for phase in STEP_PHASES)
    return f"a step {when}: {1e3 * it.wall:.2f} ms ({shares})"


def _compiled(it: CompileReport) -> list[str]:
    breaks, again = len(it.graph_breaks), len(it.recompiles)
    head = (
        f"- compiled: {it.graphs} graphs in {it.seconds:.0f} s, graph breaks at {breaks} places, recompiled at {again}"
    )
    kinds = (("graph break", it.graph_breaks), ("recompiled", it.recompiles), ("not compiled", it.fallbacks))
    return [head, *(f"  - {kind} {_place(one)}" for kind, many in kinds for one in many[:BREAKS_SHOWN])]


def _place(it: GraphBreak) -> str:
    where = f" at `{it.file.rpartition('/')[2]}:{it.line}`" if it.file else ""
    times = f", {it.count} times" if it.count > 1 else ""
    return f"{where}{times}: {' '.join(it.reason.split())[:200]}".strip()


def _hooks(rows: list[dict[str, float | str | bool]]) -> str:
    cells = [
        [
            str(it["kind"]),
            f"{float(it['plain_seconds']) * 1e6:.0f} µs",
            f"{float(it['cost_seconds']) * 1e6:+.1f} µs "
            f"({float(it['low_seconds']) * 1e6:+.1f} to {float(it['high_seconds']) * 1e6:+.1f})",
            f"{float(it['allowed_seconds']) * 1e6:.0f} µs",
            str(it["kept"]),
        ]
        for it in rows
    ]
    header = ["workload", "step without", "cost of the hooks", "allowed", "kept"]
    text = "Steps with and without the hooks, in turns; mean difference over launches, 95 % interval."
    return f"## Cost of the hooks\n\n{text}\n\n{table(header, cells)}"


def _false_alarms(it: FalseAlarms) -> str:
    ratios = "; ".join(", ".join(f"{ratio:.3f}" for ratio in row) for row in it.ratios)
    return (
        "## The same code in all roles\n\n"
        f"{it.replicates} replicates of three equal arms. With the roles in each of {it.orders} orders (these share "
        f"their replicates), a difference was claimed {it.claims} times, and the baseline disagreed with itself "
        f"{it.disagreements} times. "
        f"One order: {interval(it.comparison.speedup)}, noise floor {it.comparison.noise_floor:.1%}, smallest effect "
        f"that could have been seen {it.comparison.smallest_detectable:.1%}. Seconds of the second and the third arm "
        f"relative to the first's, replicate by replicate: {ratios}."
    )


def _machine(it: Machine) -> str:
    rates = [[name, f"{rate / 1e12:.3g} TFLOP/s"] for name, rate in it.ceilings.matmul_flops_per_second]
    scalars = (
        ("memory of the device", it.ceilings.memory_bytes_per_second),
        ("host to device, pageable", it.ceilings.host_to_device_pageable_bytes_per_second),
        ("host to device, pinned", it.ceilings.host_to_device_pinned_bytes_per_second),
    )
    rates += [[name, f"{rate / 1e9:.3g} GB/s"] for name, rate in scalars if rate]
    lines = ["## What the machine reaches", "", table(["what", "rate"], rates)]
    lines += ["", *(f"- {accelerator.name}: {', '.join(accelerator.native_dtypes)}" for accelerator in it.accelerators)]
    return "\n".join([*lines, *(f"- {warning}" for warning in it.warnings)])


def _failures(failures: Mapping[str, str]) -> str:
    if not failures:
        return ""
    return "\n".join(["## Without a result", "", *(f"- {name}: {why}" for name, why in failures.items())])
