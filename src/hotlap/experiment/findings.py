"""What the findings mean to a search: which levers to try first.

Findings order trials, and bound none. That a rule is silent does not show that its cause is absent (it is silent as
well where evidence lacks), and the share that it finds was measured once, under a profiler. What bounds a lever is
measured without one: the phases of the time account and the ceilings, see :func:`hotlap.procedures.screen.bound_of`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.diagnose import Profile, diagnose
from hotlap.experiment.draft import StudyDraft
from hotlap.records import Finding


def note_findings(draft: StudyDraft, profile: Profile) -> tuple[Finding, ...]:
    """Look for causes in the profile and write what is found into the study.

    A rule that stumbles over what a script did must not cost its user the search: then a warning says so, and there
    are no findings.
    """
    try:
        findings = diagnose(profile)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        draft.warn(f"Causes could not be checked: a rule failed ({type(error).__name__}: {error}). Please report it.")
        return ()
    draft.update(findings=findings)
    return findings


def precedence(findings: Sequence[Finding], lever: str) -> tuple[float, float]:
    """By what the findings put a lever before others, larger first: the largest share of a step that one of them was
    measured to cost which this lever answers, then the largest of those of which only a bound is known."""
    shares = [it.share for it in findings if it.kind == "cost" and lever in it.levers]
    measured = max((it.value for it in shares if not it.is_bound), default=0.0)
    return measured, max((it.value for it in shares if it.is_bound), default=0.0)
