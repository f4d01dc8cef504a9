"""What holds for every lint rule of the folder, this one and the next."""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from hotlap.errors import LintError
from hotlap.source.lint.api import GROUPS, FixSafety, Rule, all_rules, build
from hotlap.source.lint.check import check
from hotlap.source.lint.context import Context
from hotlap.source.lint.fix import fix

ROOT = Path(__file__).parents[3]
SECTIONS = ("What it does", "Why it is slow", "Example", "Use instead", "Fix safety", "References")
SECTIONS_OF_WRONG = ("What it does", "Why it is wrong", *SECTIONS[2:])  # for a rule about wrong numbers
LONGEST_MESSAGE = 200
FEWEST_EXAMPLES = 3

every_rule = pytest.mark.parametrize("rule", all_rules().values(), ids=lambda it: it.name)


@every_rule
def test_the_page_has_its_sections_in_order(rule: Rule) -> None:
    headings = tuple(line.removeprefix("## ") for line in rule.page.splitlines() if line.startswith("## "))
    assert headings in (SECTIONS, SECTIONS_OF_WRONG)
    bodies = rule.page.split("\n## ")[1:]
    assert all(len(body.splitlines()) >= 2 and body.splitlines()[1].strip() for body in bodies)


@every_rule
def test_the_page_begins_with_the_title(rule: Rule) -> None:
    first, blank = rule.page.splitlines()[:2]
    assert first == f"{rule.title}."
    assert not blank.strip()
    assert "!" not in rule.page.replace("!=", "")


@every_rule
def test_the_page_says_how_safe_the_fix_is(rule: Rule) -> None:
    section = rule.page.split("## Fix safety\n")[1]
    said = {"safe": "Safe:", "unsafe": "Unsafe:", "shown": "Shown only:", "none": "None:"}[rule.fix_safety]
    assert section.startswith(said)


@every_rule
def test_references_are_torchs_own_pages_or_papers(rule: Rule) -> None:
    references = rule.page.split("## References\n")[1].strip().splitlines()
    assert references
    assert all(line.startswith(("- https://", "  ")) for line in references)


@every_rule
def test_code_and_name(rule: Rule) -> None:
    assert rule.group in GROUPS.values()
    assert rule.name == rule.name.lower()
    assert rule.title == rule.title.strip() and rule.title and not rule.title.endswith(".")


def test_titles_are_distinguished() -> None:
    titles = Counter(rule.title for rule in all_rules().values())
    assert not [title for title, count in titles.items() if count > 1]


@every_rule
def test_there_are_enough_examples(rule: Rule) -> None:
    assert len(rule.bad) >= FEWEST_EXAMPLES
    assert len(rule.good) >= FEWEST_EXAMPLES
    texts = Counter((*rule.bad.values(), *rule.good.values()))
    assert max(texts.values()) == 1
    assert set(rule.fixed) <= set(rule.bad)


@every_rule
def test_it_fires_where_it_must(rule: Rule) -> None:
    for what, text in rule.bad.items():
        _, hits = check(text, [rule])
        assert hits, what
        lines = text.splitlines()
        for hit in hits:
            message = hit.violation.message
            assert message.endswith(".") and message.isprintable() and len(message) <= LONGEST_MESSAGE
            assert 1 <= hit.violation.node.lineno <= len(lines), what  # type: ignore[attr-defined]


@every_rule
def test_it_is_silent_where_it_must(rule: Rule) -> None:
    assert messages(rule, rule.good) == {}


@every_rule
def test_it_is_silent_without_torch(rule: Rule) -> None:
    """The same code where the names are those of another package."""
    packages = "torchvision|torch|lightning|accelerate|transformers"
    others = {what: re.sub(rf"(import|from) (?={packages})", r"\1 other_", text) for what, text in rule.bad.items()}
    assert messages(rule, others) == {}


def messages(rule: Rule, examples: Mapping[str, str]) -> dict[str, list[str]]:
    """What the rule says of those examples in which it finds something."""
    hits = {what: check(text, [rule])[1] for what, text in examples.items()}
    return {what: [it.violation.message for it in found] for what, found in hits.items() if found}


@every_rule
def test_it_copes_with_what_other_rules_are_about(rule: Rule) -> None:
    for other in all_rules().values():
        for text in (*other.bad.values(), *other.good.values()):
            check(text, [rule])


def test_bad_examples_need_no_other_file() -> None:
    for rule in all_rules().values():
        for text in (*rule.bad.values(), *rule.good.values(), *rule.fixed.values()):
            ast.parse(text)


def test_rules_are_listed_by_code() -> None:
    codes = list(all_rules())
    assert codes == sorted(codes)
    assert json.dumps(codes)


# -- fixes -------------------------------------------------------------------------------------------

ALL_GRADES: tuple[FixSafety, ...] = ("safe", "unsafe", "shown")


@every_rule
def test_a_fix_makes_what_it_says(rule: Rule) -> None:
    for what, expected in rule.fixed.items():
        assert fix(rule.bad[what], [rule], ALL_GRADES).text == expected, what


@every_rule
def test_a_fixed_source_is_sound(rule: Rule) -> None:
    """It parses, what was fixed is not found again, it stays what it is, and uses no name that nothing binds."""
    for what, text in rule.bad.items():
        if not any(hit.violation.edits for hit in check(text, [rule])[1]):
            continue
        fixed = fix(text, [rule], ALL_GRADES)
        assert fixed.text != text, what
        assert sum(fixed.counts.values()) >= 1, what
        assert [hit.violation.message for hit in fixed.hits if hit.violation.edits] == [], what
        assert fix(fixed.text, [rule], ALL_GRADES).text == fixed.text, what
        assert unbound_names(fixed.text) <= unbound_names(text), what


@every_rule
def test_only_graded_rules_make_edits(rule: Rule) -> None:
    made = [hit for text in rule.bad.values() for hit in check(text, [rule])[1] if hit.violation.edits]
    assert bool(made) is (rule.fix_safety != "none")


def unbound_names(text: str) -> set[str]:
    context = Context(ast.parse(text), text)
    names = context.names
    return {
        it.id
        for it in context.tree.of(ast.Name)
        if isinstance(it.ctx, ast.Load) and names.home(it) is None and not hasattr(builtins, it.id)
    }


# -- what is wrong with a rule's file is said ---------------------------------------------------------


def a_rule(**changes: object) -> ModuleType:
    module = ModuleType("hotlap.source.lint.rules.some_pattern", "Some pattern.")
    members: dict[str, object] = {
        "code": "HL101",
        "title": "Some pattern",
        "fix_safety": "none",
        "check": lambda context: (),
        "bad": {},
        "good": {},
    }
    for name, value in {**members, **changes}.items():
        if value is not None:
            setattr(module, name, value)
    return module


def test_a_whole_rule_is_built() -> None:
    assert build(a_rule()).name == "some-pattern"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"code": None}, "lacks 'code'"),
        ({"check": None}, "lacks 'check'"),
        ({"code": "HL99"}, "has the code 'HL99'"),
        ({"code": "HL801"}, "has the code 'HL801'"),
        ({"fix_safety": "sure"}, "grades its fix 'sure'"),
        ({"fix_safety": "safe"}, "grades a fix without showing one"),
        ({"fixed": {"x": "y"}}, "or the other way round"),
    ],
)
def test_a_broken_rule_is_a_loud_error(changes: dict[str, object], said: str) -> None:
    with pytest.raises(LintError, match=said):
        build(a_rule(**changes))


def test_a_rule_without_a_page_is_a_loud_error() -> None:
    module = a_rule()
    module.__doc__ = None
    with pytest.raises(LintError, match="lacks a docstring"):
        build(module)
