"""Read the lines of source that a study's findings name, where the files still are what was measured."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from hotlap.diagnose.profile import Profile
from hotlap.files import MEBIBYTE, read_bounded
from hotlap.records import CallSite, Study

_LARGEST_SOURCE_BYTES = 4 * MEBIBYTE


def source_lines(study: Study, profile: Profile | None) -> tuple[str, ...]:
    """Return for each finding the line at its site; empty where it has none, or the file is another by now."""
    known = {it.file: it.sha256 for it in profile.facts.files} if profile is not None else {}
    files = {it.site.file for it in study.findings if it.site is not None and it.site.file in known}
    texts = {it: _lines_of(Path(study.workload.directory, it), known[it]) for it in files}
    return tuple(_line_at(it.site, texts) for it in study.findings)


def _lines_of(path: Path, sha256: str) -> list[str]:
    """Return the file's lines; none if it cannot be read, or changed since it was measured."""
    try:
        data = read_bounded(path, _LARGEST_SOURCE_BYTES)
    except (OSError, ValueError):
        return []
    if hashlib.sha256(data).hexdigest() != sha256:
        return []
    return data.decode("utf-8", errors="replace").split("\n")


def _line_at(site: CallSite | None, texts: Mapping[str, list[str]]) -> str:
    lines = texts.get(site.file, []) if site is not None else []
    return lines[site.line - 1].strip() if site is not None and 0 < site.line <= len(lines) else ""
