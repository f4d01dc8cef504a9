"""What a lever said of itself in a trial: that it left something as it was, and why."""

from __future__ import annotations

from hotlap.experiment.draft import StudyDraft
from hotlap.records import Run, Setting


def warn_of_notes(draft: StudyDraft, setting: Setting, run: Run) -> None:
    """Add the notes of a run with the lever to the study's warnings, without those of the unmodified script."""
    known = draft.study.baseline.notes if draft.study.baseline is not None else ()
    draft.warn(*(f"{setting.lever}: {it}" for it in run.notes if it not in known))
