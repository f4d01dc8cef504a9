"""Which command makes each kind of study, and whether it can resume one: one line per kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from hotlap.records import Study, StudyKind
from hotlap.study.layout import LABS


class Made(NamedTuple):
    """``command`` made it, and ``resumes`` an interrupted one; without a folder the last one, unless it ``is_named``
    because the command makes studies of another kind, too."""

    command: str
    resumes: bool = False
    is_named: bool = False


KINDS: Final[Mapping[StudyKind, Made]] = MappingProxyType(
    {
        "search": Made("tune", resumes=True),
        "profile": Made("profile"),
        "check": Made("check"),
        "batch": Made("batch"),
        "inference": Made("infer"),
        "memory": Made("memory"),
        "watch": Made("run"),
        "scale": Made("scale", resumes=True),
        "processes": Made("tune", resumes=True, is_named=True),
    }
)


def command_of(study: Study) -> str:
    """Return the command that made a study, without ``hotlap``.

    A search in the folder for labs was made by ``hotlap lab``.
    """
    return LABS if Path(study.directory).parent.name == LABS else KINDS[study.kind].command


def resumes(study: Study) -> bool:
    """Whether an interrupted study of this kind can be resumed."""
    return KINDS[study.kind].resumes


def resuming_command(study: Study, directory: Path) -> str:
    """The command that continues a study in that folder."""
    named = f" {directory}" if KINDS[study.kind].is_named else ""
    return f"hotlap {command_of(study)} --resume{named}"
