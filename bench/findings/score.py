"""Compare what was found in one script with what was planted there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.findings.planted import Planted
from hotlap.records import Finding


@dataclass(frozen=True, slots=True)
class Claim:
    """What a finding says that its cause costs: a share of the step or of the run (``unit``), or only a bound of it."""

    rule: str
    share: float
    is_bound: bool
    unit: str


@dataclass(frozen=True, slots=True)
class Score:
    """One script. ``wanted`` are the planted rules as :attr:`Planted.wanted` has them, ``found`` those of all findings,
    in order; ``wrong_lines`` are planted ones that named another line than the marked one, and ``false`` what was found
    and is not true of the script. With ``trouble`` it could not be profiled, and nothing was found."""

    name: str
    wanted: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    wrong_lines: tuple[str, ...] = ()
    ranked_first: bool = True
    titles: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    seconds: float = 0.0
    trouble: str = ""

    @property
    def is_right(self) -> bool:
        """Whether all that was planted was found, in the right place and order, and nothing else."""
        return self.ranked_first and not (self.missed or self.false or self.wrong_lines or self.trouble)

    def in_words(self) -> str:
        """One line of progress."""
        if self.is_right:
            return "right"
        parts = (
            ("missed", self.missed),
            ("false", self.false),
            ("wrong line", self.wrong_lines),
            ("not first", () if self.ranked_first else (self.wanted[0],)),
            ("trouble", (self.trouble,) if self.trouble else ()),
        )
        return "; ".join(f"{what}: {', '.join(which)}" for what, which in parts if which)


def score(planted: Planted, findings: Sequence[Finding], warnings: Sequence[str] = (), *, busy: bool = False) -> Score:
    """What was found, against its description; ``busy`` where other work took cores from it."""
    rules = tuple(dict.fromkeys(rule for it in findings for rule in _rules_of(it)))
    costs = [it for it in findings if it.kind == "cost"]
    allowed = planted.allowed(busy)
    return Score(
        name=planted.name,
        wanted=planted.wanted,
        found=rules,
        missed=tuple(it for it in planted.wanted if it not in rules),
        false=tuple(it for it in rules if it not in allowed),
        wrong_lines=tuple(sorted(_wrong_lines(planted, findings))),
        ranked_first=_is_first(planted, costs),
        titles=tuple(f"{it.rule}: {it.title}{_shown(it)}" for it in findings),
        warnings=tuple(warnings),
        claims=tuple(Claim(it.rule, it.share.value, it.share.is_bound, it.share.unit) for it in costs),
    )


def judged_again(planted: Planted, earlier: Score, *, busy: bool = False) -> Score:
    """What an earlier run found, against what the description says today of what is wanted and what is true."""
    if earlier.trouble:
        return failed(planted, earlier.trouble)
    allowed = planted.allowed(busy)
    return replace(
        earlier,
        wanted=planted.wanted,
        missed=tuple(it for it in planted.wanted if it not in earlier.found),
        false=tuple(it for it in earlier.found if it not in allowed),
    )


def failed(planted: Planted, trouble: str) -> Score:
    """A script that could not be profiled: all that was planted is missed."""
    return Score(name=planted.name, wanted=planted.wanted, missed=planted.wanted, trouble=trouble)


def _rules_of(finding: Finding) -> tuple[str, ...]:
    """The rule, and those that explain it."""
    return (finding.rule, *finding.causes)


def _wrong_lines(planted: Planted, findings: Sequence[Finding]) -> set[str]:
    lines = planted.lines()
    named = {rule: {_place(it) for it in findings if rule in _rules_of(it)} for rule in lines}
    found = {rule for it in findings for rule in _rules_of(it)}
    return {rule for rule, place in lines.items() if rule in found and place not in named[rule]}


def _place(finding: Finding) -> tuple[str, int] | None:
    return (Path(finding.site.file).name, finding.site.line) if finding.site else None


def _shown(finding: Finding) -> str:
    place = _place(finding)
    return f" ({place[0]}:{place[1]})" if place else ""


def _is_first(planted: Planted, costs: Sequence[Finding]) -> bool:
    """Whether the planted cause is costliest, up to causes that are true as well and cost the same within a tenth. What
    is only bounded is ranked after all that was measured."""
    mine = [it.share for it in costs if planted.first in _rules_of(it)]
    if not mine:
        return True  # missed, or a hazard without a cost
    bounded = all(it.is_bound for it in mine)
    rivals = [it.share.value for it in costs if not it.share.is_bound or bounded]
    return max(rivals) <= 1.1 * max(it.value for it in mine)
