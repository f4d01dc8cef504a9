"""A study on disk: an append-only journal, its lock, and how an interrupted search resumes.

A study is a folder::

    .hotlap/20260131-142501-337/
        journal.jsonl   each request to the executor and its answer, one JSON object per line
        study.json      the current Study, replaced atomically after every outcome
        profile.json    the measurements behind the findings; their source files may be deleted by then
        step.json       when backward finished which gradient, where strategies for several ranks were predicted
        check.json      the complete answer of `hotlap check`, in its studies
        signature.json  shows that this user made the study here
        patch.json      the kept levers as a change of the source, once `hotlap patch` made one
        lock            held while a run is active; contains its process number
        runs/           files of the trials: output, gradients, evidence, traces

``docs/study-format.md`` describes every file and field. :mod:`hotlap.study.reading` reads studies,
:mod:`hotlap.study.journal` writes them, and :mod:`hotlap.study.migrations` converts older formats.
"""

from hotlap.study.journal import Journal, attach_to, create_study, open_study
from hotlap.study.kinds import command_of, resumes
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
    MEASURED_STEP,
    MEMORIES,
    PATCH,
    PLAN_PROFILE,
    PROFILE,
    PROFILES,
    RUNS,
    SCALES,
    SUMMARY,
    WATCHES,
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
from hotlap.study.records import Answer, CollectivesAnswer, Header, LaunchAnswer, MachineAnswer, TurnAnswer
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
    "MEASURED_STEP",
    "MEMORIES",
    "PATCH",
    "PLAN_PROFILE",
    "PROFILE",
    "PROFILES",
    "RUNS",
    "SCALES",
    "SUMMARY",
    "WATCHES",
    "Answer",
    "Approve",
    "CollectivesAnswer",
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
    "resumes",
    "studies_in",
]
