"""From a profile to its findings, the dearest first. Not a rule itself."""

from __future__ import annotations

from hotlap.diagnose.api import all_rules
from hotlap.diagnose.profile import Profile
from hotlap.records import Finding

_KINDS = ("wrong-numbers", "cost", "risk", "hint")


def diagnose(profile: Profile) -> tuple[Finding, ...]:
    """What every rule finds: wrong numbers first, then costs by their share of the step, then risks and hints."""
    found = [finding for rule in all_rules().values() for finding in rule.check(profile)]
    return tuple(sorted(found, key=_order))


def _order(finding: Finding) -> tuple[int, float, str, str]:
    site = f"{finding.site.file}:{finding.site.line:08d}" if finding.site else ""
    return _KINDS.index(finding.kind), -finding.share.value, finding.rule, site
