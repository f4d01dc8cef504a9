"""The command that continues an interrupted study."""

from __future__ import annotations

from hotlap.records import Study
from hotlap.redact import is_redacted
from hotlap.render import text


def resuming(command: str, study: Study) -> str:
    """``hotlap tune --resume STUDY``. A study does not store the secrets of its script, which must be given again."""
    again = text.script_command(study.workload) if is_redacted(study.workload) else ""
    return " ".join(filter(None, (f"hotlap {command} --resume", text.shell_word(study.directory), again)))
