"""The order of findings: wrong numbers, costs by size, risks, hints."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from hotlap.diagnose import Profile, diagnose, rank
from hotlap.diagnose.api import Rule
from hotlap.diagnose.shares import at_most, between, exactly
from hotlap.records import (
    CallSite,
    Finding,
    FindingKind,
    LoaderFacts,
    LoaderRate,
    Machine,
    PhaseAccount,
    ScriptFacts,
    Setting,
)

KEEP, PAGES = "keep-freed-memory", "huge-pages"


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
def test_the_costliest_comes_first(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Equal costs are ordered by rule, file and line, so that reports are reproducible."""
    shuffled = list(IN_ORDER)
    random.Random(seed).shuffle(shuffled)
    monkeypatch.setattr(rank, "all_rules", lambda: rules_that_find(*shuffled))
    assert diagnose(Profile()) == IN_ORDER


def test_no_bound_ranks_above_a_cost_that_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a bound of 38 %, whose removal saved nothing, ranked above a cost of 12 %."""
    large = Finding(rule="large-bound", share=at_most(0.4), title="1.")
    small = Finding(rule="small-bound", share=at_most(0.3), title="1.")
    sure = Finding(rule="sure", share=between(0.2, 0.19, 0.21), title="1.")
    little = Finding(rule="little", share=exactly(0.02), title="1.")
    risk = Finding(rule="risk", kind="risk", share=exactly(0.0), title="1.")
    monkeypatch.setattr(rank, "all_rules", lambda: rules_that_find(small, risk, large, little, sure))
    assert diagnose(Profile()) == (sure, little, large, small, risk)


def test_nothing_found() -> None:
    assert diagnose(Profile()) == ()


# -- one cause, one finding ---------------------------------------------------------------------------


def rule_that_explains(name: str, explains: str, found: Finding) -> Rule:
    (rule,) = rules_that_find(found).values()
    return replace(rule, name=name, explains=(explains,))


def test_a_cause_is_merged_into_the_finding_it_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    effect = msgspec.structs.replace(
        finding("effect", value=0.6, line=3), evidence=("wait: 6 of 10 ms, 60 %",), remedy="Guess.", levers=(PAGES,)
    )
    cause = msgspec.structs.replace(
        finding("cause", value=0.6, line=3),
        evidence=("wait: 6 of 10 ms", "1 core"),
        remedy="Do it.",
        levers=(PAGES, KEEP),
    )
    known = rules_that_find(effect) | {"cause": rule_that_explains("cause", "effect", cause)}
    monkeypatch.setattr(rank, "all_rules", lambda: known)
    (found,) = diagnose(Profile())
    assert (found.rule, found.causes, found.share) == ("effect", ("cause",), effect.share)
    assert found.evidence == ("wait: 6 of 10 ms, 60 %", "1 core")
    assert (found.remedy, found.levers) == ("Do it.", (PAGES, KEEP))


@pytest.mark.parametrize("kind", ["hint", "cost"])
def test_a_merged_cause_without_a_cost_adds_its_title(monkeypatch: pytest.MonkeyPatch, kind: FindingKind) -> None:
    effect, cause = finding("effect", value=0.6, line=3), finding("cause", kind=kind, line=3)
    cause = msgspec.structs.replace(cause, title="4 would do.")
    known = rules_that_find(effect) | {"cause": rule_that_explains("cause", "effect", cause)}
    monkeypatch.setattr(rank, "all_rules", lambda: known)
    (found,) = diagnose(Profile())
    assert found.evidence == ("4 would do.",) and found.kind == "cost"


def test_a_cause_at_another_line_is_reported_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    effect, cause = finding("effect", value=0.6, line=3), finding("cause", value=0.5, line=4)
    known = rules_that_find(effect) | {"cause": rule_that_explains("cause", "effect", cause)}
    monkeypatch.setattr(rank, "all_rules", lambda: known)
    assert diagnose(Profile()) == (effect, cause)


def test_a_rule_may_rank_last_among_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = finding("z", kind="hint"), finding("a", kind="hint")
    known = rules_that_find(first, last)
    known["a"] = replace(known["a"], ranks_last=True)
    monkeypatch.setattr(rank, "all_rules", lambda: known)
    assert diagnose(Profile()) == (first, last)


# -- what the rules themselves declare ----------------------------------------------------------------

SITE = CallSite(role="loader", file="train.py", line=5)


def waiting_for(workers: int, *rates: tuple[int, float]) -> Profile:
    """Make a step that waits for 60 % of its time, on a machine with twelve cores."""
    loader = LoaderFacts(dataset="Images", batch_size=32, workers=workers, prefetch_factor=2, site=SITE)
    return Profile(
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("data_wait", 0.06),
                ("forward", 0.04),
            ),
            samples_per_step=32,
        ),
        facts=ScriptFacts(loaders=(loader,)),
        machine=Machine(cores=12),
        loader_rates=tuple(
            LoaderRate(
                setting=Setting(lever="loader", values=(("num_workers", it), ("prefetch_factor", 2 if it else 0))),
                seconds_per_sample=1 / per_second,
            )
            for it, per_second in rates
        ),
    )


def test_too_many_workers_is_one_finding_with_the_best_number() -> None:
    """Regression: the first finding said to add workers, the third to remove eleven of twelve."""
    (found,) = diagnose(waiting_for(12, (12, 89.0), (4, 900.0), (1, 1955.0), (0, 700.0)))
    assert (found.rule, found.causes, found.kind) == ("loader-bound", ("too-many-workers",), "cost")
    assert found.evidence[0] == "1 worker would load 22 times as fast as the script's 12."
    assert found.remedy.startswith("Pass num_workers=1, which was measured best")
    assert "add workers" not in found.remedy


def test_the_fastest_lower_worker_count_is_named() -> None:
    (found,) = diagnose(waiting_for(12, (12, 89.0), (4, 1955.0), (1, 100.0)))
    assert "num_workers=4," in found.remedy


def test_no_workers_and_the_wait_for_data_are_one_finding() -> None:
    (found,) = diagnose(waiting_for(0, (0, 300.0), (2, 590.0), (4, 600.0)))
    assert (found.rule, found.causes) == ("loader-bound", ("no-workers",))
    assert "num_workers=2 " in found.remedy and "measured best" in found.remedy
    assert sum("of a step of" in it for it in found.evidence) == 1


@pytest.mark.parametrize(
    ("rates", "says"),
    [
        (((2, 300.0), (4, 600.0), (8, 605.0)), "Pass num_workers=4, which was measured best"),
        (((2, 600.0), (4, 500.0)), "no more workers were measured to load faster"),
        ((), "add workers as long as cores are free"),
    ],
)
def test_a_loader_with_workers_gets_the_measured_rates(rates: tuple[tuple[int, float], ...], says: str) -> None:
    (found,) = diagnose(waiting_for(2, *rates))
    assert says in found.remedy and not found.causes


def test_reads_in_every_step_rank_last() -> None:
    reads = rank.all_rules()["reads-in-every-step"]
    others = [it for it in rank.all_rules().values() if it.ranks_last]
    assert others == [reads]
