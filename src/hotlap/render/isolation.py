"""The isolation of trials, in words for reports and for ``hotlap doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from hotlap.records import Machine, Protection, ProtectionMode, Study
from hotlap.render import text

_DONE: Mapping[ProtectionMode, str] = {
    "namespaces": "what the script wrote went to a layer of the run and was thrown away",
    "fence": "what the script's Python code wrote went to the run and was thrown away, and the kernel denied all other "
    "writes",
    "none": "what the script's Python code wrote went to the run and was thrown away, and nothing kept other writes "
    "from your files",
}
_MEANS: Mapping[ProtectionMode, str] = {
    "namespaces": "Whatever a trial writes, by any program or library, goes to a layer of its own and is thrown away.",
    "fence": "What a trial's Python code writes goes to the run and is thrown away; the kernel denies other writes.",
    "none": "What a trial's Python code writes goes to the run and is thrown away; other writes change your files, so "
    "trials are refused without `--unprotected`.",
}
_ABILITY: Mapping[ProtectionMode, str] = {
    "namespaces": "whatever a trial writes is thrown away",
    "fence": "what Python code writes is thrown away, and other writes are denied",
    "none": "they are refused without `--unprotected`, since they could change your files",
}
_NETWORK = {
    "open": "open: trials have the script's network access (`--network none` leaves them only loopback)",
    "none": "none: trials reach only loopback",
}
_UNPROTECTED = "The kernel did not isolate the trials: programs and libraries in them may have changed your files."


def isolation_ability(mode: ProtectionMode) -> str:
    """A clause on what that mode means, for one line."""
    return _ABILITY[mode]


def isolation_lines(machine: Machine) -> Iterator[str]:
    """Sentences on how the trials of a study were isolated and, unless by namespaces, what was not protected."""
    protection = machine.protection
    if protection is None:
        return
    network = " Trials had no network except loopback." if protection.network == "none" else ""
    yield f"Isolation: {protection.mode}; {_DONE[protection.mode]}.{network}"
    if protection.mode != "namespaces":
        yield from (f"Not protected: {text.one_line(it)}" for it in protection.gaps)


def study_warnings(study: Study) -> list[str]:
    """Every warning of the study and of its machine once; missing isolation comes first."""
    protection = study.machine.protection
    unprotected = protection is not None and protection.mode == "none"
    first = [_UNPROTECTED] if unprotected else []
    return list(dict.fromkeys(text.sentence(it) for it in (*first, *study.warnings, *study.machine.warnings)))


class IsolationDocument(Protection, frozen=True, kw_only=True):
    """A part of a JSON document: the isolation of trials, and what its mode means."""

    meaning: str


def isolation_document(machine: Machine) -> IsolationDocument | None:
    """The isolation of trials on this machine, as a part of a JSON document; None if it was not examined."""
    it = machine.protection
    return None if it is None else IsolationDocument(meaning=_MEANS[it.mode], **msgspec.structs.asdict(it))


def isolation_facts(protection: Protection) -> Iterator[tuple[str, str]]:
    """The isolation of trials on this machine, as named facts."""
    yield "mode", protection.mode
    yield "meaning", _MEANS[protection.mode]
    yield "network", _NETWORK[protection.network]
    if protection.mode != "none":
        ends = "ended by the kernel with the run" if protection.pid_namespace else "ended by hotlap one by one"
        yield "processes", ends
    if protection.shared_folders:
        yield "shared", f"{', '.join(map(text.one_line, protection.shared_folders))} (caches, as the script uses them)"
    for it in protection.gaps:
        yield "not protected", text.one_line(it)
    for it in protection.reasons:
        yield "not in use", text.one_line(it)
