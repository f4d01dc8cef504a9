"""Properties of every rule, including rules added later."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from hotlap.diagnose import Profile, diagnose
from hotlap.diagnose.api import Rule, all_rules
from hotlap.diagnose.shares import RUN, UNIT
from hotlap.diagnose.wording import levers_for
from hotlap.levers.api import all_levers
from hotlap.records import Finding

SECTIONS = ("What it is", "Why it is slow", "How to see it", "What to do", "When it is fine")
EXPECTED = {
    "data": {
        "accelerator-in-dataset",
        "blocking-copies",
        "crowded-cores",
        "loader-bound",
        "no-workers",
        "pageable-copies",
        "short-queue",
        "slow-sampler",
        "slow-transform",
        "small-shared-memory",
        "too-many-workers",
        "worker-startup",
    },
    "host": {
        "anomaly-detection",
        "empty-cache",
        "host-sync",
        "launch-bound",
        "logging-cost",
        "other-time",
        "python-overhead",
        "reads-in-every-step",
        "small-operators",
        "tensor-on-host",
    },
    "compute": {
        "bias-before-norm",
        "cudnn-benchmark-off",
        "dominant-operator",
        "eager-attention",
        "layout-conversions",
        "padded-batches",
        "slow-matmul-precision",
        "unaligned-sizes",
        "unfused-optimizer",
    },
    "compile": {"compile-never-pays", "graph-breaks", "recompiles", "silent-fallback"},
    "memory": {"allocator-retries", "close-to-limit", "fragmentation", "memory-growth", "room-for-batch"},
    "numbers": {"gradient-spikes", "non-finite-loss", "scaler-skips"},
    "distributed": {"data-parallel", "exposed-communication", "straggler"},
    "run": {"checkpoint-cost", "evaluation-cost", "startup-cost"},
    "machine": {"narrow-pcie", "old-driver", "oversubscribed", "shared-device", "throttled"},
}
LONGEST_LINE = 200
"""Characters of a title or a line of evidence: what a terminal shows in two lines."""

every_rule = pytest.mark.parametrize("rule", all_rules().values(), ids=lambda it: it.name)


@pytest.mark.parametrize("group", EXPECTED)
def test_all_expected_rules_exist(group: str) -> None:
    assert {it.name for it in all_rules().values() if it.group == group} >= EXPECTED[group]


@every_rule
def test_the_page_has_its_sections_in_order(rule: Rule) -> None:
    headings = [line.removeprefix("## ") for line in rule.page.splitlines() if line.startswith("## ")]
    assert tuple(headings) == SECTIONS
    bodies = rule.page.split("\n## ")[1:]
    assert all(len(body.splitlines()) >= 2 and body.splitlines()[1].strip() for body in bodies)


@every_rule
def test_the_page_begins_with_a_sentence(rule: Rule) -> None:
    first, blank = rule.page.splitlines()[:2]
    assert first.endswith(".") and not blank.strip()


@every_rule
def test_the_rule_declares_its_fields(rule: Rule) -> None:
    assert rule.name == rule.name.lower().replace("_", "-")
    assert rule.title.strip() == rule.title and rule.title and "\n" not in rule.title
    assert not rule.title.endswith(".")
    assert rule.group in EXPECTED
    assert rule.levers == levers_for(rule.name)


def test_no_two_rules_have_the_same_title() -> None:
    titles = Counter(rule.title for rule in all_rules().values())
    assert not [title for title, count in titles.items() if count > 1]


@every_rule
def test_there_are_enough_examples(rule: Rule) -> None:
    assert len(rule.fires) >= 2
    assert len(rule.silent) >= 2
    assert Profile() in rule.silent.values(), "the silent examples must include an empty profile"
    assert len([it for it in rule.silent.values() if it != Profile()]) >= 1, (
        "the silent examples must include a near miss"
    )


@every_rule
def test_the_rule_fires_on_its_examples(rule: Rule) -> None:
    assert [what for what, profile in rule.fires.items() if not list(rule.check(profile))] == []
    for finding in (it for profile in rule.fires.values() for it in rule.check(profile)):
        assert_sound(rule, finding)


@every_rule
def test_the_rule_is_silent_on_its_counterexamples(rule: Rule) -> None:
    found = {what: list(rule.check(profile)) for what, profile in rule.silent.items()}
    assert {what: findings for what, findings in found.items() if findings} == {}


@every_rule
def test_examples_are_profiles_as_they_are_stored(rule: Rule) -> None:
    """Also find fields of a wrong type, since records check types when they are read."""
    for what, profile in (*rule.fires.items(), *rule.silent.items()):
        assert msgspec.json.decode(msgspec.json.encode(profile), type=Profile) == profile, what


@every_rule
def test_the_rule_handles_the_examples_of_other_rules(rule: Rule) -> None:
    for other in all_rules().values():
        for profile in (*other.fires.values(), *other.silent.values()):
            for finding in rule.check(profile):
                assert_sound(rule, finding)


@every_rule
def test_the_same_profile_gives_the_same_findings(rule: Rule) -> None:
    for profile in rule.fires.values():
        assert list(rule.check(profile)) == list(rule.check(profile))


def test_an_empty_profile_has_no_findings() -> None:
    assert diagnose(Profile()) == ()


@pytest.mark.parametrize("lever", all_levers().values(), ids=lambda it: it.name)
def test_levers_address_rules_that_exist(lever: object) -> None:
    addresses = lever.addresses  # type: ignore[attr-defined]
    assert addresses
    assert set(addresses) <= set(all_rules())
    assert len(set(addresses)) == len(addresses)


def assert_sound(rule: Rule, finding: Finding) -> None:
    """Check the properties of every finding."""
    assert finding.rule == rule.name
    share = finding.share
    assert 0 <= share.low <= share.value <= share.high <= 1
    assert share.unit == (RUN if rule.group == "run" and finding.kind == "cost" else UNIT)
    if finding.kind == "cost":
        assert share.value > 0
    if finding.kind in ("risk", "hint"):
        assert share.value == 0, "a risk costs nothing yet, and the saving of a hint is unknown"
    assert_shown_well(finding.title)
    assert finding.title.endswith("."), "the title is one sentence"
    assert any(it.isdigit() for it in finding.title), "the title contains its number"
    assert finding.evidence
    assert any(it.isdigit() for line in finding.evidence for it in line), "evidence consists of figures"
    for line in finding.evidence:
        assert_shown_well(line)
    assert finding.remedy and "!" not in finding.remedy
    assert set(finding.levers) <= set(rule.levers)
    assert msgspec.json.decode(msgspec.json.encode(finding), type=Finding) == finding


def assert_shown_well(text: str) -> None:
    assert text == text.strip() and text
    assert text.isprintable(), "one line without control characters"
    assert len(text) <= LONGEST_LINE
    assert "!" not in text
    assert "nan" not in text.lower().split() and "inf" not in text.lower().split()
