"""What the parts of a page say, as plain text in small records; templates only lay it out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotlap import plan
from hotlap.gain import claimed
from hotlap.records import FileWrite, Finding, Kept, Machine, Study
from hotlap.render import text
from hotlap.render.account import rate_of, samples_factor
from hotlap.render.blocks import Fact, Tone
from hotlap.render.comparison import parity_phrase
from hotlap.render.disturbance import finding_doubt
from hotlap.render.findings import answered, label, place, rules, share_interval
from hotlap.render.isolation import isolation_lines, study_warnings
from hotlap.render.kinds.api import presenter_of
from hotlap.render.terminal import ceiling_rates

_FILES_SHOWN = 40
_LONGEST_PATCH = 100_000
_MOST_PATCH_LINES = 2_000
_TONES_OF_KINDS: dict[str, Tone] = {"cost": "neutral", "wrong-numbers": "bad", "risk": "neutral", "hint": "neutral"}
KIND_WORDS = {"cost": "costs time", "wrong-numbers": "wrong numbers", "risk": "risk", "hint": "hint"}


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding as it is shown. ``label`` says what it costs, a share of the step or of the run; ``fates`` say what
    trials showed, each with its tone."""

    label: str
    kind: str
    tone: Tone
    title: str
    about: tuple[str, ...]
    evidence: tuple[str, ...]
    remedy: str
    fates: tuple[tuple[Tone, str], ...]


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a patch; ``kind`` is ``added``, ``removed``, ``place`` or ``same``."""

    kind: str
    text: str


def facts(study: Study) -> Iterator[Fact]:
    """The figures of the first screen."""
    before = study.account_before
    after = study.account_after if claims_gain(study) else None
    if before is not None and before.wall > 0:
        yield _step_fact(study)
        name, rate = rate_of(before)
        if after is not None and after.wall > 0:
            yield Fact(_capital(name), text.number(rate_of(after)[1]), text.number(rate))
        else:
            yield Fact(_capital(name), text.number(rate))
    verification = study.verification
    if verification is not None and claims_gain(study):
        if verification.baseline_peak_bytes and verification.candidate_peak_bytes:
            peaks = text.size(verification.candidate_peak_bytes), text.size(verification.baseline_peak_bytes)
            yield Fact("Peak memory", *peaks)
        yield Fact("Does it train the same?", _capital(parity_phrase(verification.parity)))
    if study.outcomes:
        kept = sum(1 for it in study.outcomes if isinstance(it.verdict, Kept))
        yield Fact("Levers kept", f"{kept} of {len(study.outcomes)}")
    yield from presenter_of(study.kind).facts(study)
    if study.spent_seconds:
        yield Fact("Time spent measuring", text.clock(study.spent_seconds))


def claims_gain(study: Study) -> bool:
    """Whether the plan may be compared with the unmodified script."""
    return claimed(study) is not None


def _step_fact(study: Study) -> Fact:
    before, after = study.account_before, study.account_after
    assert before is not None
    own = text.duration(before.wall)
    if after is None or not claims_gain(study):
        return Fact("Mean step", own)
    return Fact("Mean step", text.duration(after.wall * samples_factor(before, after)), own)


def finding_views(study: Study) -> tuple[FindingView, ...]:
    """All findings, dearest first."""
    return tuple(
        FindingView(
            label=f"{label(it)} {text.whole_of(it.share)}" if it.kind == "cost" else "",
            kind=KIND_WORDS[it.kind],
            tone=_TONES_OF_KINDS[it.kind],
            title=text.one_line(it.title),
            about=tuple(filter(None, (rules(it), place(it, study.workload.directory), _interval(it)))),
            evidence=tuple(filter(None, (*map(text.one_line, it.evidence), finding_doubt(it, study)))),
            remedy=text.one_line(it.remedy),
            fates=tuple(answered(it, study)),
        )
        for it in study.findings
    )


def _interval(it: Finding) -> str:
    """The interval of what it costs; what the share is of stands in the label."""
    found = share_interval(it)
    return "" if found == text.whole_of(it.share) else found


def plan_text(study: Study) -> str:
    """The plan of the kept levers as the file it becomes; nothing where none was kept."""
    if not study.plan.settings:
        return ""
    versions = dict(study.machine.library_versions)
    return text.clean(plan.to_toml(study.plan, torch_version=versions.get("torch", ""), study=study.identifier))


def diff_lines(patch: str) -> tuple[DiffLine, ...]:
    """A unified diff line by line; one that is far too long is cut at its end."""
    kinds = {"+": "added", "-": "removed", "@": "place", "#": "place"}
    whole = patch.splitlines()
    lines = [text.clean(it) for it in patch[:_LONGEST_PATCH].splitlines()[:_MOST_PATCH_LINES]]
    shown = [
        DiffLine("place" if it.startswith(("+++", "---", "diff ")) else kinds.get(it[:1], "same"), it) for it in lines
    ]
    if len(lines) < len(whole) or len(patch) > _LONGEST_PATCH:
        shown.append(DiffLine("place", "(the rest of the patch is left out here)"))
    return tuple(shown)


def study_facts(study: Study, command: str, seed: int | None) -> Iterator[Fact]:
    """What must be known to make this study again."""
    source = study.source
    rows = (
        ("Command", command),
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


def machine_facts(machine: Machine) -> Iterator[Fact]:
    """What it was measured on."""
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


def warnings(study: Study) -> tuple[str, ...]:
    """Every warning of the study and of the machine, each once."""
    return tuple(study_warnings(study))


def files(written: Sequence[FileWrite]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The files that trials wrote, in groups with their meaning: those that were changed, then those that were
    spared."""
    for redirected, what in (
        (False, "Changed while trials ran"),
        (True, "Untouched: the trials wrote to copies, which are gone"),
    ):
        paths = sorted({text.one_line(it.path) for it in written if it.redirected is redirected})
        more = [f"and {len(paths) - _FILES_SHOWN} more"] if len(paths) > _FILES_SHOWN else []
        if paths:
            yield what, (*paths[:_FILES_SHOWN], *more)


def hosts(names: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The hosts that trials connected to, as a group like those of the files."""
    if names:
        yield text.HOSTS_TITLE, tuple(text.hosts(names))


def script_name(study: Study) -> str:
    """The script without the folders it lies in."""
    target = study.workload.target
    return text.one_line(Path(target).name if study.workload.kind == "script" else target, limit=80)


def _revision(revision: str, modified: bool | None) -> str:
    if not revision:
        return ""
    return f"{revision}, with changes that are not committed" if modified else revision


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
