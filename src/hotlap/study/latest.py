"""Choose the study for a command that names none: the newest one that has what the command needs.

A newer study of a script that failed at its start, a copied study, or a quick look does not hide an older one with an
answer. One sentence explains which newer studies were skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from hotlap.errors import StudyError
from hotlap.records import Study
from hotlap.study.kinds import command_of, resumes
from hotlap.study.layout import JOURNAL
from hotlap.study.reading import latest_study, load_study, made_here, studies_in

Need: TypeAlias = Literal["answer", "plan", "search", "scale", "processes"]
"""What a command needs of a study: an ``answer`` (at least the time account), a ``plan`` with a lever in it, or that it
is of this kind and can be resumed: a ``search``, a prediction (``scale``), or a comparison of numbers of
``processes``."""

_LACKS: dict[Need, str] = {
    "answer": "ended without results",
    "plan": "kept no lever",
    "search": "cannot be resumed",
    "scale": "is not of `hotlap scale`",
    "processes": "is not of `hotlap tune --nproc`",
}


_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Last:
    """The study's folder. ``passed_over`` says why newer ones were skipped; empty if it is the newest."""

    directory: Path
    passed_over: str = ""


def last_study(root: Path, need: Need = "answer", *, also: Sequence[Path] = ()) -> Last:
    """Return the newest suitable study under ``root`` or in the folders ``also``.

    Studies that this user made here come first, then suitable ones of others. If none is suitable, the newest of all is
    returned, whose contents explain what is wrong. Raises :class:`StudyError` if there is none.
    """
    found = sorted((it for folder in (root, *also) for it in studies_in(folder)), key=lambda it: it.name, reverse=True)
    if not found:
        return Last(latest_study(root))
    reasons: list[tuple[Path, str]] = []
    foreign: Last | None = None
    for directory in found:
        reason = _reason_against(directory, need)
        if not reason and _is_ours(directory):
            return Last(directory, _sentence(directory, reasons))
        if not reason and foreign is None:
            foreign = Last(directory, _sentence(directory, reasons))
        reasons.append((directory, reason or "was not made here by you"))
    return foreign or Last(found[0])


def is_study(path: Path) -> bool:
    """Whether a path is one study: its folder, or a file in it."""
    return path.is_file() or (path / JOURNAL).is_file()


def _reason_against(directory: Path, need: Need) -> str:
    """Return why a study is not suitable; empty if it is."""
    try:
        study = load_study(directory)
    except StudyError:
        return "cannot be read"
    if study.status == "script-failed":
        return "ended because its script failed"
    if _has(study, need):
        return ""
    if study.status == "running":
        return "is still running"
    if need == "answer" and study.status == "finished":
        return f"is of `hotlap {command_of(study)}` and has no time account"
    return _LACKS[need]


def _has(study: Study, need: Need) -> bool:
    if need == "plan":
        return bool(study.plan.settings)
    if need in ("search", "scale", "processes"):
        return study.kind == need and resumes(study)
    return study.account_before is not None or (study.watch is not None and study.watch.steps > 0)


def _is_ours(directory: Path) -> bool:
    try:
        return made_here(directory)
    except StudyError:
        return False


def _sentence(chosen: Path, reasons: Sequence[tuple[Path, str]]) -> str:
    if not reasons:
        return ""
    return f"Using the study {chosen.name}: {', '.join(_newer(reasons))}."


def _newer(reasons: Sequence[tuple[Path, str]]) -> Iterator[str]:
    shown = reasons[:_MOST_NAMED]
    for directory, reason in shown:
        yield f"the newer {directory.name} {reason}"
    if len(reasons) > len(shown):
        yield f"{len(reasons) - len(shown)} more were skipped"
