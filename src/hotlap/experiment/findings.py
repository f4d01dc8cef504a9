"""Order levers by the findings.

Findings order trials, but bound none: a rule without a finding does not show that its cause is absent (evidence may be
missing), and the share that it reports was measured once, under a profiler. Bounds of levers are measured without one:
the phases of the time account and the ceilings, see :func:`hotlap.procedures.screen.bound_of`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hotlap.diagnose import Profile, diagnose
from hotlap.experiment.draft import StudyDraft
from hotlap.levers.api import all_levers
from hotlap.records import Finding, Situation


def note_findings(draft: StudyDraft, profile: Profile, *, advises: bool = False) -> tuple[Finding, ...]:
    """Apply the rules to the profile and write the findings into the study.

    A study that tries levers says why some of them cannot be tried; one that only ``advises`` names none of these. A
    rule that raises must not end the search: the study gets a warning instead, and no findings.
    """
    try:
        findings = diagnose(profile)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        draft.warn(f"Causes could not be checked: a rule failed ({type(error).__name__}: {error}). Please report it.")
        return ()
    if advises:
        findings = tuple(_with_possible_levers(it, profile.situation) for it in findings)
    draft.update(findings=findings)
    return findings


def _with_possible_levers(finding: Finding, situation: Situation) -> Finding:
    """The finding with those of its levers that can be tried in this situation."""
    known = all_levers()
    possible = (it for it in finding.levers if it in known and known[it].obstacle(situation) is None)
    return msgspec.structs.replace(finding, levers=tuple(possible))


def precedence(findings: Sequence[Finding], lever: str) -> tuple[float, float]:
    """The sort key of a lever by the findings it addresses, larger first.

    It is the largest measured share of a step, then the largest share of which only a bound is known.
    """
    shares = [it.share for it in findings if it.kind == "cost" and lever in it.levers]
    measured = max((it.value for it in shares if not it.is_bound), default=0.0)
    return measured, max((it.value for it in shares if it.is_bound), default=0.0)
