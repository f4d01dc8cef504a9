"""Findings instead of all rules, which a fake script has no evidence for."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from hotlap.diagnose.api import Rule
from hotlap.diagnose.shares import exactly
from hotlap.records import Estimate, Finding


def answered_by(monkeypatch: pytest.MonkeyPatch, levers: Sequence[str], *, share: float) -> None:
    """Let every profile show one cost of that share of a step, which these levers answer."""
    each_answered_by(monkeypatch, (levers, exactly(share)))


def each_answered_by(monkeypatch: pytest.MonkeyPatch, *costs: tuple[Sequence[str], Estimate]) -> None:
    """Let every profile show costs of these shares of a step, each with the levers that answer it."""

    def finds(profile: object) -> list[Finding]:
        return [Finding(rule="slow", share=share, title="Steps are slow.", levers=tuple(it)) for it, share in costs]

    rules = {"slow": Rule("slow", "slow", "slow", "compute", (), finds, {}, {}, ("account",))}  # type: ignore[arg-type]
    monkeypatch.setattr(sys.modules["hotlap.diagnose.rank"], "all_rules", lambda: rules)
