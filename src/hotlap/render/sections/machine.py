"""The machine, and how to repeat the study."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from hotlap.records import Machine, Study
from hotlap.render import text
from hotlap.render.blocks import Fact
from hotlap.render.html.parts import Heading, PageBlock, Pairs
from hotlap.render.isolation import isolation_lines
from hotlap.render.layout import paragraphs
from hotlap.render.machine import ceiling_rates, machine_line
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 86


def terminal(material: Material) -> Section[RenderableType] | None:
    """The machine in one line, and the isolation of trials."""
    machine = material.study.machine
    if not (machine.processor or machine.accelerators):
        return None
    return Section("Machine", tuple(paragraphs([machine_line(machine), *isolation_lines(machine)])))


def markdown(material: Material) -> Section[str]:
    """The same, with rates and versions."""
    return Section("Machine and versions", tuple(_lines(material.study)))


def page(material: Material) -> Section[PageBlock]:
    """All known facts."""
    machine = tuple(_machine_facts(material.study.machine))
    blocks = (Heading("The machine"), Pairs(machine)) if machine else ()
    return Section("How to repeat it", (Heading("The study"), Pairs(tuple(_study_facts(material))), *blocks))


def _lines(study: Study) -> Iterator[str]:
    if study.machine.processor or study.machine.accelerators:
        yield f"- {text.markdown(machine_line(study.machine))}"
        yield from (f"- {text.markdown(it)}" for it in isolation_lines(study.machine))
    rates = [f"{name} {rate}" for name, rate in ceiling_rates(study.machine)]
    if rates:
        yield f"- {text.markdown('Reached: ' + ', '.join(rates))}"
    versions = ", ".join(f"{name} {version}" for name, version in study.machine.library_versions)
    if versions:
        yield f"- {text.markdown(versions)}"
    began = " ".join(filter(None, (study.hotlap_version, study.identifier and f"study {study.identifier}")))
    yield f"- {text.markdown(f'hotlap {began}'.strip())}"
    if study.source.git_revision:
        yield f"- {text.markdown(f'git {study.source.git_revision}')}"


def _study_facts(material: Material) -> Iterator[Fact]:
    """The facts that are needed to repeat this study."""
    study, seed = material.study, material.seed
    source = study.source
    rows = (
        ("Command", material.command),
        ("Started in", study.workload.directory),
        ("Python", study.workload.python),
        ("Script's version", _revision(source.git_revision, source.git_modified)),
        ("Script's SHA-256", source.script_sha256),
        ("Seed of the trials", "" if seed is None else str(seed)),
        ("Began", study.started),
        ("Took", text.clock(study.spent_seconds) if study.spent_seconds else ""),
        ("Budget", text.clock(study.budget_seconds) if study.budget_seconds else ""),
        ("Study", study.directory or study.identifier),
        ("hotlap", study.hotlap_version),
    )
    return (Fact(name, text.one_line(value, limit=1000)) for name, value in rows if value)


def _machine_facts(machine: Machine) -> Iterator[Fact]:
    """The facts about the machine."""
    accelerators = [
        ", ".join(filter(None, (it.name, text.size(it.memory_bytes), it.driver and f"driver {it.driver}")))
        for it in machine.accelerators
    ]
    rows = [
        ("Processor", machine.processor),
        ("Cores", f"{machine.cores} available, {machine.physical_cores} physical" if machine.processor else ""),
        ("Memory", text.size(machine.memory_bytes) if machine.memory_bytes else ""),
        *(("Accelerator", it) for it in accelerators),
        ("System", machine.system),
        ("Python", machine.python_version),
        *machine.library_versions,
        *(("Variable", f"{name}={value}") for name, value in machine.environment),
        *((f"Rate: {name}", rate) for name, rate in ceiling_rates(machine)),
        *(_pair(it) for it in isolation_lines(machine)),
    ]
    return (Fact(text.one_line(name), text.one_line(value)) for name, value in rows if value)


def _pair(sentence: str) -> tuple[str, str]:
    name, _, rest = sentence.partition(": ")
    return name, rest


def _revision(revision: str, modified: bool | None) -> str:
    if not revision:
        return ""
    return f"{revision}, with changes that are not committed" if modified else revision
