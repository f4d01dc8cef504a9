"""Fix violations, in rounds until nothing changes.

Each violation's edits are applied as a whole or not at all. Of violations that touch the same code one is fixed per
round, so that no fix drops another. A round whose result cannot be parsed is discarded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hotlap.source.lint.api import FixSafety, Rule, Violation
from hotlap.source.lint.check import Hit, Surroundings, Unreadable, check, parsed
from hotlap.source.lint.suppressions import Suppressions

_MOST_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Fixed:
    """A text after its fixes: what is left in it, and how many violations of each code were fixed."""

    text: str
    hits: Sequence[Hit]
    counts: dict[str, int]


def grade(rule: Rule, violation: Violation) -> FixSafety:
    """The safety of a violation's edits; ``none`` without edits."""
    if not violation.edits:
        return "none"
    return violation.safety if violation.safety is not None else rule.fix_safety


def fix(
    text: str, rules: Sequence[Rule], grades: Collection[FixSafety], surroundings: Surroundings | None = None
) -> Fixed:
    """Apply all edits of these grades. Raises :class:`Unreadable` for a text that cannot be edited."""
    from hotlap.source.edits.apply import apply_changes
    from hotlap.source.edits.refusals import CannotEdit

    counts: dict[str, int] = {}
    hits = visible(text, rules, surroundings)
    for _ in range(_MOST_ROUNDS):
        wanted = [it for it in hits if grade(it.rule, it.violation) in grades]
        if not wanted:
            break
        try:
            applied = apply_changes(text, [it.violation.edits for it in wanted])
        except CannotEdit as error:
            raise Unreadable(f"Nothing was fixed. {error.reason}") from None
        if applied.text == text:
            break
        try:
            parsed(applied.text)
            hits_after = visible(applied.text, rules, surroundings)
        except Unreadable:
            break
        refused = {it.index for it in applied.refused}
        for index, hit in enumerate(wanted):
            if index not in refused:
                counts[hit.rule.code] = counts.get(hit.rule.code, 0) + 1
        text, hits = applied.text, hits_after
    return Fixed(text, hits, counts)


def visible(text: str, rules: Sequence[Rule], surroundings: Surroundings | None = None) -> list[Hit]:
    """Run the rules, without violations that comments suppress. Raises :class:`Unreadable`."""
    context, hits = check(text, rules, surroundings)
    if not hits:
        return hits
    suppressions = Suppressions(text)
    return [it for it in hits if not suppressions.covers(it.rule.code, context.tree, it.violation.node)]
