"""From a profile to its findings, the costliest first. Not a rule itself."""

from __future__ import annotations

from hotlap.diagnose.api import all_rules
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import is_bound
from hotlap.records import Finding

_KINDS = ("wrong-numbers", "cost", "risk", "hint")


def diagnose(profile: Profile) -> tuple[Finding, ...]:
    """What every rule finds: wrong numbers first, then costs by their share of the step, then risks and hints.

    Costs that were measured come before those of which only a bound is known, however large: a bound says what could be
    gained if the cause were the only one, and the rest of the step may hide behind it.
    """
    found = [finding for rule in all_rules().values() for finding in rule.check(profile)]
    return tuple(sorted(found, key=_order))


def _order(finding: Finding) -> tuple[int, bool, float, str, str]:
    site = f"{finding.site.file}:{finding.site.line:08d}" if finding.site else ""
    return _KINDS.index(finding.kind), is_bound(finding.share), -finding.share.value, finding.rule, site
