"""Which command makes which kind of study, and whether it can go on with one: a line a kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from hotlap.records import Study, StudyKind
from hotlap.study.layout import LABS


class Made(NamedTuple):
    """``command`` made it, and ``resumes`` one that was cut."""

    command: str
    resumes: bool = False


KINDS: Final[Mapping[StudyKind, Made]] = MappingProxyType(
    {
        "search": Made("tune", resumes=True),
        "profile": Made("profile"),
        "check": Made("check"),
        "batch": Made("batch"),
        "inference": Made("infer"),
        "memory": Made("memory"),
    }
)


def command_of(study: Study) -> str:
    """The command that made a study, without ``hotlap``. A search in the folder for labs is one of ``hotlap lab``."""
    return LABS if Path(study.directory).parent.name == LABS else KINDS[study.kind].command


def resumes(study: Study) -> bool:
    """Whether a study of this kind can be resumed where it was cut."""
    return KINDS[study.kind].resumes
