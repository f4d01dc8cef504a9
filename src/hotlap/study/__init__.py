"""A study on disk: an append-only journal, its lock, and how a search goes on where it was cut.

A study is a folder::

    .hotlap/20260131-142501-337/
        journal.jsonl   what was asked of the executor and what it answered, one JSON object a line
        study.json      the Study as it stands, replaced as a whole after every outcome
        profile.json    what findings were made of; the files it was read from may be gone by then
        check.json      the whole answer of `hotlap check`, in its studies
        signature.json  shows that this user made the study here
        patch.json      the kept levers as a change of the source, once `hotlap patch` made one
        lock            held while a run is at work; holds its process number
        runs/           what the trials left behind: output, gradients, evidence, traces

``docs/study-format.md`` describes every file and field. Reading is :mod:`hotlap.study.reading`, writing
:mod:`hotlap.study.journal`; a format of the past is brought up to date by :mod:`hotlap.study.migrations`.
"""

from hotlap.study.journal import Journal, attach_to, create_study, open_study
from hotlap.study.kinds import command_of
from hotlap.study.latest import Last, Need, is_study, last_study
from hotlap.study.layout import (
    BATCHES,
    CHECK,
    CHECKS,
    FOLDERS,
    FORMAT,
    INFERENCES,
    JOURNAL,
    LABS,
    LOCK,
    MEMORIES,
    PATCH,
    PROFILE,
    PROFILES,
    RUNS,
    SUMMARY,
)
from hotlap.study.reading import (
    RecordType,
    attachment_of,
    directory_of,
    latest_study,
    load_study,
    made_here,
    opening_of,
    read_header,
    studies_in,
)
from hotlap.study.records import Answer, Header, LaunchAnswer, MachineAnswer, TurnAnswer
from hotlap.study.trust import Approve, Opening, completed, refuse_foreign

__all__ = [
    "BATCHES",
    "CHECK",
    "CHECKS",
    "FOLDERS",
    "FORMAT",
    "INFERENCES",
    "JOURNAL",
    "LABS",
    "LOCK",
    "MEMORIES",
    "PATCH",
    "PROFILE",
    "PROFILES",
    "RUNS",
    "SUMMARY",
    "Answer",
    "Approve",
    "Header",
    "Journal",
    "Last",
    "LaunchAnswer",
    "MachineAnswer",
    "Need",
    "Opening",
    "RecordType",
    "TurnAnswer",
    "attach_to",
    "attachment_of",
    "command_of",
    "completed",
    "create_study",
    "directory_of",
    "is_study",
    "last_study",
    "latest_study",
    "load_study",
    "made_here",
    "open_study",
    "opening_of",
    "read_header",
    "refuse_foreign",
    "studies_in",
]
