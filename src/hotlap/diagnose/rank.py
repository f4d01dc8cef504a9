"""From a profile to its findings, the dearest first. Not a rule itself."""

from __future__ import annotations

import msgspec

from hotlap.diagnose.api import Rule, all_rules
from hotlap.diagnose.profile import Profile
from hotlap.records import Finding

_KINDS = ("wrong-numbers", "cost", "risk", "hint")


def diagnose(profile: Profile) -> tuple[Finding, ...]:
    """What every rule finds: wrong numbers first, then costs by their share of the step, then risks and hints. A cost
    that rests on times of a disturbed measurement is marked, and stands behind those that do not."""
    found = [_marked(finding, rule, profile) for rule in all_rules().values() for finding in rule.check(profile)]
    return tuple(sorted(found, key=_order))


def _marked(finding: Finding, rule: Rule, profile: Profile) -> Finding:
    if finding.kind != "cost" or not set(rule.rests_on) & set(profile.disturbed):
        return finding
    return msgspec.structs.replace(finding, disturbed=True)


def _order(finding: Finding) -> tuple[int, bool, float, str, str]:
    site = f"{finding.site.file}:{finding.site.line:08d}" if finding.site else ""
    return _KINDS.index(finding.kind), finding.disturbed, -finding.share.value, finding.rule, site
