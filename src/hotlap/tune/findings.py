"""What the findings mean to a search: which levers to try first.

Findings order trials, and bound none. That a rule is silent does not show that its cause is absent (it is silent as
well where evidence lacks), and the share that it finds was measured once, under a profiler. What bounds a lever is
measured without one: the phases of the time account and the ceilings, see :func:`hotlap.tune.screen.bound_of`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.diagnose import Profile, diagnose
from hotlap.records import Finding
from hotlap.tune.book import Book


def note_findings(book: Book, profile: Profile) -> tuple[Finding, ...]:
    """Look for causes in the profile and write what is found into the study.

    A rule that stumbles over what a script did must not cost its user the search: then a warning says so, and there
    are no findings.
    """
    try:
        findings = diagnose(profile)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        book.warn(f"The causes were not looked for: a rule failed ({type(error).__name__}: {error}). Please report it.")
        return ()
    book.update(findings=findings)
    return findings


def answered_share(findings: Sequence[Finding], lever: str) -> float:
    """The largest share of a step that a finding costs which this lever answers; 0 where it answers none."""
    return max((it.share.value for it in findings if it.kind == "cost" and lever in it.levers), default=0.0)
