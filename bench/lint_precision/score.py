"""Joining hits with labels, rule by rule."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.aa.report import Rate, rate
from bench.lint_precision.corpus import Hit, Key
from bench.lint_precision.labels import Label

SEED = 20261121
SAMPLE = 60
"""Of a rule with more hits than this, so many are drawn at random and labelled; the others are not looked at."""


@dataclass(frozen=True, slots=True)
class Score:
    """One rule's hits. ``drawn`` is how many were to be labelled, ``unlabelled`` those of them that are not."""

    code: str
    name: str
    hits: int
    packages: int
    drawn: int
    right: int
    wrong: int
    debatable: int
    unlabelled: tuple[Key, ...]

    @property
    def labelled(self) -> int:
        """How many were looked at."""
        return self.right + self.wrong + self.debatable

    @property
    def precision(self) -> Rate | None:
        """The share of hits that are right, of those that were looked at; what is debatable is not right."""
        return rate(self.right, self.labelled) if self.labelled else None

    @property
    def not_wrong(self) -> Rate | None:
        """The share that is right or debatable."""
        return rate(self.right + self.debatable, self.labelled) if self.labelled else None


def scores(hits: Sequence[Hit], labels: Mapping[Key, Label], rules: Mapping[str, str]) -> list[Score]:
    """A score for each rule by code, also of those without a hit; ``rules`` are their names by code."""
    by_code: dict[str, list[Hit]] = {code: [] for code in rules}
    for hit in hits:
        by_code[hit.key.code].append(hit)
    return [_score(code, rules[code], found, labels) for code, found in sorted(by_code.items())]


def total(all_scores: Sequence[Score]) -> Score:
    """All rules together."""
    return Score(
        code="",
        name="all rules",
        hits=sum(it.hits for it in all_scores),
        packages=0,
        drawn=sum(it.drawn for it in all_scores),
        right=sum(it.right for it in all_scores),
        wrong=sum(it.wrong for it in all_scores),
        debatable=sum(it.debatable for it in all_scores),
        unlabelled=tuple(key for it in all_scores for key in it.unlabelled),
    )


def drawn_of_rules(hits: Sequence[Hit]) -> list[Hit]:
    """The hits of one corpus that are to be labelled, rule by rule."""
    codes = sorted({it.key.code for it in hits})
    return [hit for code in codes for hit in drawn_from([it for it in hits if it.key.code == code])]


def drawn_from(hits: Sequence[Hit]) -> list[Hit]:
    """The hits of one rule that are to be labelled: all, or a sample that is the same in every run."""
    ordered = sorted(hits, key=lambda it: (it.key, it.number))
    return ordered if len(ordered) <= SAMPLE else random.Random(SEED).sample(ordered, SAMPLE)


def _score(code: str, name: str, hits: Sequence[Hit], labels: Mapping[Key, Label]) -> Score:
    drawn = drawn_from(hits)
    verdicts = Counter(labels[it.key].verdict for it in drawn if it.key in labels)
    return Score(
        code=code,
        name=name,
        hits=len(hits),
        packages=len({it.key.package for it in hits}),
        drawn=len(drawn),
        right=verdicts["right"],
        wrong=verdicts["wrong"],
        debatable=verdicts["debatable"],
        unlabelled=tuple(it.key for it in drawn if it.key not in labels),
    )
