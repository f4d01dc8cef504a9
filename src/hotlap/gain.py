"""What the plan of a study was found to give."""

from __future__ import annotations

from hotlap.machine.label import machine_label
from hotlap.records import Comparison, Kept, RecordedGain, Study


def comparison_of_plan(study: Study) -> Comparison | None:
    """The study's plan against the untouched script: its verification, else the trial that compared just these two
    (that of the three-run lab); None where neither was made."""
    if study.verification is not None:
        return study.verification
    comparisons = [it.verdict.comparison for it in study.outcomes if isinstance(it.verdict, Kept)]
    whole = [it for it in comparisons if it.candidate == study.plan and not it.baseline.settings]
    return whole[-1] if whole else None


def recorded_gain(study: Study) -> RecordedGain | None:
    """The gain that a study may promise: shown to be faster, with a baseline that agreed with itself."""
    found = comparison_of_plan(study)
    if found is None or found.speed.verdict != "faster" or not found.speed.baseline_agrees:
        return None
    return RecordedGain(
        speedup=found.speed.speedup,
        confidence=found.speed.confidence,
        sets=found.speed.sets,
        machine=machine_label(study.machine),
        torch_version=dict(study.machine.library_versions).get("torch", ""),
    )
