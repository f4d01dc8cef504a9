"""The names of files and folders in a study, its format, and how much is read at most."""

from __future__ import annotations

from typing import Final

FORMAT: Final = 4
"""The format that is written. :mod:`hotlap.study.migrations` converts older ones."""

JOURNAL: Final = "journal.jsonl"
SUMMARY: Final = "study.json"
PROFILE: Final = "profile.json"
PLAN_PROFILE: Final = "plan-profile.json"
MEASURED_STEP: Final = "step.json"
PATCH: Final = "patch.json"
CHECK: Final = "check.json"
LOCK: Final = "lock"
SIGNATURE: Final = "signature.json"
RUNS: Final = "runs"

LABS: Final = "lab"
"""The folder for the studies of ``hotlap lab``, where a resumed search does not look."""

PROFILES: Final = "profile"
"""The folder for the studies of ``hotlap profile``, for the same reason."""

CHECKS: Final = "check"
"""The folder for the studies of ``hotlap check``, which only ``hotlap history`` reads."""

BATCHES: Final = "batch"
"""The folder for the studies of ``hotlap batch``."""

INFERENCES: Final = "infer"
"""The folder for the studies of ``hotlap infer``."""

MEMORIES: Final = "memory"
"""The folder for the studies of ``hotlap memory``."""

WATCHES: Final = "watch"
"""The folder for the studies of ``hotlap run --watch``."""

SCALES: Final = "scale"
"""The folder for the studies of ``hotlap scale`` and of ``hotlap tune --nproc``."""

FOLDERS: Final = (LABS, PROFILES, CHECKS, BATCHES, INFERENCES, MEMORIES, WATCHES, SCALES)
"""All of these: folders in the folder of studies that hold studies of their own."""

SUMMARY_LIMIT_BYTES: Final = 32 * 2**20
ATTACHMENT_LIMIT_BYTES: Final = 64 * 2**20
LINE_LIMIT_BYTES: Final = 256 * 2**20
JOURNAL_LIMIT_BYTES: Final = 2**30
"""A study from elsewhere may be of any size. Ours stay a hundred times below these limits."""
