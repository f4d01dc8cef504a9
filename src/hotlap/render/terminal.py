"""A study as a report for the terminal: the gain, where the time goes, each lever and why, what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hotlap.records import Ceiling, Costs, FileWrite, Machine, Study
from hotlap.render import text
from hotlap.render.account import time_account
from hotlap.render.batch_sizes import batch_table
from hotlap.render.cost import cost_lines, energy_line
from hotlap.render.disturbance import account_doubt, batch_doubt, ceiling_doubt
from hotlap.render.findings import answers, findings_list
from hotlap.render.headline import headline
from hotlap.render.isolation import isolation_lines, study_warnings
from hotlap.render.kinds.api import Headline, presenter_of
from hotlap.render.layout import Trimmed, indented, paragraphs
from hotlap.render.lever_table import lever_table
from hotlap.render.presentable import presentable

WIDEST = 120
_FILES_SHOWN = 8
CEILING_MEANINGS = {
    "loader-alone": "No model can train faster than this loader delivers.",
    "model-alone": "No loader can make this model train faster.",
    "matmul": "Every operation at the measured matmul rate.",
}
_TONES = {"good": "bold green", "neutral": "bold yellow", "bad": "bold red"}


def report(study: Study, *, plan_path: str = "hotlap.toml", costs: Costs | None = None) -> RenderableType:
    """The whole report. ``plan_path`` is where the plan was written, empty when it was not."""
    study = presentable(study, study.workload.directory)
    pieces: list[RenderableType] = [_top(study), Text(), _headline(headline(study))]
    for title, body in _sections(study, plan_path, costs):
        pieces += [Text(), Text(title, style="bold"), body]
    return Trimmed(Constrain(Group(*pieces), WIDEST))


def machine_line(machine: Machine) -> str:
    """The machine in one line: processor, cores, memory, accelerators, and the versions that decide most."""
    parts = [text.one_line(machine.processor) or "unknown processor", text.count(machine.cores, "core")]
    if machine.memory_bytes:
        parts.append(text.size(machine.memory_bytes))
    parts += [f"{text.one_line(it.name)} ({text.size(it.memory_bytes)})" for it in machine.accelerators]
    versions = dict(machine.library_versions)
    parts += [f"{name} {text.one_line(versions[name])}" for name in ("torch", "cuda", "hip") if name in versions]
    if machine.python_version:
        parts.append(f"Python {text.one_line(machine.python_version)}")
    return ", ".join(parts)


def ceiling_rates(machine: Machine) -> Iterator[tuple[str, str]]:
    """Each rate that this machine reached, with its name."""
    ceilings = machine.ceilings
    for key, flops in ceilings.matmul_flops_per_second:
        device, _, dtype = text.one_line(key).partition(":")
        yield f"matmul on {device} in {dtype}", text.rate(flops, "FLOP")
    for name, bytes_per_second in (
        ("memory", ceilings.memory_bytes_per_second),
        ("host to device, pageable", ceilings.host_to_device_pageable_bytes_per_second),
        ("host to device, pinned", ceilings.host_to_device_pinned_bytes_per_second),
    ):
        if bytes_per_second is not None:
            yield name, text.rate(bytes_per_second, "B")


def _sections(study: Study, plan_path: str, costs: Costs | None) -> Iterator[tuple[str, RenderableType]]:
    if study.account_before is not None:
        yield (
            "Where a step's time goes",
            time_account(
                study.account_before,
                study.account_after,
                "after" if study.plan.settings else "given up",
                doubt=account_doubt(study),
                run=study.run_account,
            ),
        )
    if study.outcomes:
        beside = {it.lever: answers(it.lever, study.findings) for it in study.outcomes}
        yield "Levers", lever_table(study.outcomes, study.account_before, beside)
    ceilings = list(_ceilings(study))
    if ceilings:
        yield "Ceilings", Group(*ceilings)
    if study.batch_rates:
        yield "Batch sizes", batch_table(study.batch_rates, batch_doubt(study))
    if study.findings:
        yield "Findings", findings_list(study)
    spent = list(cost_sentences(study, costs))
    if spent:
        yield "Costs", Group(*paragraphs(spent, style=""))
    if study.files:
        yield "Files the script wrote or changed", Group(*_file_lines(study.files))
    if study.hosts:
        yield text.HOSTS_TITLE, Group(*paragraphs([", ".join(text.hosts(study.hosts))], style=""))
    warnings = study_warnings(study)
    if warnings:
        yield "Warnings", Group(*paragraphs(warnings, style="yellow"))
    if study.machine.processor or study.machine.accelerators:
        yield "Machine", Group(*paragraphs([machine_line(study.machine), *isolation_lines(study.machine)]))
    following = tuple(presenter_of(study.kind).next_commands(study, plan_path))
    if following:
        yield "Next", _commands(following)


def _top(study: Study) -> Text:
    spent = f"  {text.clock(study.spent_seconds)}" if study.spent_seconds else ""
    return Text("hotlap", style="bold").append(f"  {text.command(study.workload)}{spent}", style="dim")


def _headline(it: Headline) -> RenderableType:
    pieces: list[RenderableType] = [Text(it.sentence, style=_TONES[it.tone])]
    pieces += [indented(Text(line, style="dim"), 2) for line in it.beside]
    if it.output:
        pieces.append(Padding(Text(it.output), (1, 0, 0, 2), expand=False))
    return Group(*pieces)


def ceiling_meaning(it: Ceiling, study: Study) -> str:
    """What a ceiling means, what was measured, and what disturbed that."""
    return " ".join(filter(None, (CEILING_MEANINGS[it.name], text.sentence(it.text), ceiling_doubt(study, it.name))))


def _ceilings(study: Study) -> Iterator[RenderableType]:
    """Each ceiling with its bound, and what the bound means."""
    if study.ceilings:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(overflow="fold")
        table.add_row("", *(Text(name, style="dim") for name in ("per sample", "bound", "")))
        for it in study.ceilings:
            seconds = text.duration(it.seconds_per_sample) if it.seconds_per_sample is not None else ""
            bound = text.ratio(it.bound_speedup) if it.bound_speedup is not None else ""
            meaning = ceiling_meaning(it, study)
            table.add_row(f"  {it.name.replace('-', ' ')}", seconds, bound, Text(meaning, style="dim"))
        yield table
    if study.model_flop_utilisation is not None:
        share = text.share(study.model_flop_utilisation)
        yield from paragraphs([f"Model FLOP utilisation: {share} of the matmul rate measured on this machine."])


def cost_sentences(study: Study, costs: Costs | None) -> Iterator[str]:
    """What is known of money and break-evens, and the energy of the plan that is kept."""
    if costs is not None:
        yield from cost_lines(costs)
    if study.verification is not None and study.plan.settings and study.verification.speed.baseline_agrees:
        yield energy_line(study.verification.energy)


def _file_lines(files: Sequence[FileWrite]) -> Iterator[RenderableType]:
    """Files that trials changed as well stand out: of these the user must know."""
    for redirected, what, style in (
        (False, "changed while trials ran", "yellow"),
        (True, "untouched, trials wrote to copies, which are gone", "dim"),
    ):
        paths = sorted({text.one_line(it.path) for it in files if it.redirected is redirected})
        more = f" and {len(paths) - _FILES_SHOWN} more" if len(paths) > _FILES_SHOWN else ""
        if paths:
            yield indented(f"{what}: {', '.join(paths[:_FILES_SHOWN])}{more}", 2, style)


def _commands(commands: Sequence[tuple[str, str]]) -> RenderableType:
    pieces: list[RenderableType] = []
    for command, purpose in commands:
        pieces.append(indented(Text(command, style="bold cyan", overflow="fold"), 2))
        pieces.append(indented(Text(purpose, style="dim"), 4))
    return Group(*pieces)
