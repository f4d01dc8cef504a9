"""The order of findings: wrong numbers, costs by what they cost, risks, hints."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from hotlap.diagnose import Profile, diagnose, rank
from hotlap.diagnose.api import Rule
from hotlap.diagnose.shares import at_most, between, exactly
from hotlap.records import CallSite, Finding, FindingKind


def finding(rule: str, kind: FindingKind = "cost", value: float = 0.0, line: int = 0, file: str = "a.py") -> Finding:
    site = CallSite(role="step", file=file, line=line) if line else None
    return Finding(rule=rule, kind=kind, share=exactly(value), title="1.", site=site)


def rules_that_find(*findings: Finding) -> dict[str, Rule]:
    def rule(name: str) -> Rule:
        def check(profile: Profile) -> Iterator[Finding]:
            yield from (it for it in findings if it.rule == name)

        return Rule(name=name, title=name, page=name, group="data", levers=(), check=check, fires={}, silent={})

    return {it.rule: rule(it.rule) for it in findings}


IN_ORDER = (
    finding("nan", kind="wrong-numbers"),
    finding("dear", value=0.4),
    finding("a", value=0.1, line=9),
    finding("a", value=0.1, line=10),
    finding("a", value=0.1, line=3, file="b.py"),
    finding("b", value=0.1),
    finding("cheap", value=0.02),
    finding("a-risk", kind="risk"),
    finding("b-risk", kind="risk"),
    finding("a-hint", kind="hint"),
)


@pytest.mark.parametrize("seed", range(5))
def test_the_dearest_comes_first(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Equal costs are ordered by rule, file and line, so that two runs read alike."""
    shuffled = list(IN_ORDER)
    random.Random(seed).shuffle(shuffled)
    monkeypatch.setattr(rank, "all_rules", lambda: rules_that_find(*shuffled))
    assert diagnose(Profile()) == IN_ORDER


def test_no_bound_ranks_above_a_cost_that_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound of 38 % stood above the cause that cost 12 %, and was worth nothing."""
    large = Finding(rule="large-bound", share=at_most(0.4), title="1.")
    small = Finding(rule="small-bound", share=at_most(0.3), title="1.")
    sure = Finding(rule="sure", share=between(0.2, 0.19, 0.21), title="1.")
    little = Finding(rule="little", share=exactly(0.02), title="1.")
    risk = Finding(rule="risk", kind="risk", share=exactly(0.0), title="1.")
    monkeypatch.setattr(rank, "all_rules", lambda: rules_that_find(small, risk, large, little, sure))
    assert diagnose(Profile()) == (sure, little, large, small, risk)


def test_nothing_found() -> None:
    assert diagnose(Profile()) == ()
