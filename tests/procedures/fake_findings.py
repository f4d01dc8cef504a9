"""Findings instead of all rules, which a fake script has no evidence for."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pytest

from hotlap.diagnose.api import Rule
from hotlap.diagnose.shares import exactly
from hotlap.records import Estimate, Finding

Cost: TypeAlias = tuple[Sequence[str], Estimate]
"""The levers that answer it, and its share of a step."""


def answered_by(monkeypatch: pytest.MonkeyPatch, levers: Sequence[str], *, share: float) -> None:
    """Let every profile show one cost of that share of a step, which these levers answer."""
    each_answered_by(monkeypatch, (levers, exactly(share)))


def each_answered_by(monkeypatch: pytest.MonkeyPatch, *costs: Cost) -> None:
    """Let every profile show costs of these shares of a step, each with the levers that answer it."""
    monkeypatch.setattr(sys.modules["hotlap.diagnose.rank"], "all_rules", lambda: rules_of(*costs))


def rules_of(*costs: Cost) -> Mapping[str, Rule]:
    """The rules that find these costs in every profile."""

    def finds(profile: object) -> list[Finding]:
        return [Finding(rule="slow", share=share, title="Steps are slow.", levers=tuple(it)) for it, share in costs]

    return {"slow": Rule("slow", "slow", "slow", "compute", (), finds, {}, {}, ("account",))}  # type: ignore[arg-type]
