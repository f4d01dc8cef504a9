"""The headline of a study in one sentence, and its details."""

from __future__ import annotations

from hotlap.records import Crashed, Study
from hotlap.render import text
from hotlap.render.kinds.api import Headline, presenter_of
from hotlap.wording import ending_text


def headline(study: Study) -> Headline:
    """Summarise the study in one sentence."""
    if study.status == "script-failed":
        return _script_failed(study)
    return presenter_of(study.kind).headline(study)


def _script_failed(study: Study) -> Headline:
    ending = study.baseline.ending if study.baseline is not None else None
    why = text.one_line(ending_text(ending)) if ending is not None else ""
    error = text.one_line(getattr(ending, "error", ""))
    sentence = text.sentence(study.status_text or f"The script failed: {error or why or 'no reason is known'}")
    details = [text.sentence(why)] if why and (error or why).rstrip(".") not in sentence else []
    if isinstance(ending, Crashed) and ending.denied_path:
        details.append(
            "The trial's isolation caused this, not the script: `hotlap doctor` shows what this machine supports."
        )
    if study.baseline is not None and study.baseline.output_path:
        details.append(f"Its whole output is in {text.one_line(study.baseline.output_path)}")
    output = text.last_lines(getattr(ending, "output_tail", ""), 12)
    return Headline("bad", sentence, tuple(details), output)
