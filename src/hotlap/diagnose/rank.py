"""Rank the findings of a profile, the costliest first. Not a rule itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hotlap.diagnose.api import Rule, all_rules
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import RUN
from hotlap.records import Finding

_KINDS = ("wrong-numbers", "cost", "risk", "hint")


def diagnose(profile: Profile) -> tuple[Finding, ...]:
    """Return the findings of all rules: wrong numbers, then costs by share, then risks and hints.

    Measured costs come before those with only a bound, however large: a bound says what could be gained if the cause
    were the only one, and it may hide behind the rest of the step.

    A cost that depends on times of a disturbed measurement is marked, and comes after those that do not.

    A finding that explains another one at the same line (``Rule.explains``) is merged into it: one cause, one finding.
    """
    rules = all_rules()
    found = [_marked(finding, rule, profile) for rule in rules.values() for finding in rule.check(profile)]
    steps = profile.run_account.step_share.value if profile.run_account is not None else 1.0
    return tuple(sorted(_explained(found, rules), key=lambda it: _order(it, rules[it.rule], steps)))


def _marked(finding: Finding, rule: Rule, profile: Profile) -> Finding:
    if finding.kind != "cost" or not profile.was_disturbed(rule.rests_on):
        return finding
    return msgspec.structs.replace(finding, disturbed=True)


def _explained(found: Sequence[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """Merge each finding that explains another one into it."""
    kept = list(found)
    for cause in found:
        effect = next((it for it in kept if it.rule in rules[cause.rule].explains and it.site == cause.site), None)
        if effect is not None:
            kept.remove(cause)
            kept[kept.index(effect)] = _merged(effect, cause)
    return kept


def _merged(effect: Finding, cause: Finding) -> Finding:
    """Return the effect's cost with the cause and its remedy.

    A line of evidence is dropped if another one begins with it, since it repeats its figure.
    """
    lines = (*effect.evidence, *cause.evidence)
    fresh = [it for it in dict.fromkeys(lines) if not any(it != other and other.startswith(it) for other in lines)]
    same_cost = cause.kind == "cost" and cause.share.value == effect.share.value
    return msgspec.structs.replace(
        effect,
        evidence=tuple(fresh) if same_cost else (cause.title, *fresh),
        remedy=cause.remedy,
        levers=tuple(dict.fromkeys((*effect.levers, *cause.levers))),
        disturbed=effect.disturbed or cause.disturbed,
        causes=(*effect.causes, cause.rule),
    )


def _order(finding: Finding, rule: Rule, step_share: float) -> tuple[int, bool, bool, bool, float, str, str]:
    site = f"{finding.site.file}:{finding.site.line:08d}" if finding.site else ""
    of_the_run = finding.share.value * (1.0 if finding.share.unit == RUN else step_share)
    return (
        _KINDS.index(finding.kind),
        finding.disturbed,
        rule.ranks_last,
        finding.share.is_bound,
        -of_the_run,
        finding.rule,
        site,
    )
