"""Findings: cost, evidence, place, remedy, and results of trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hotlap.gain import exceeds_bound
from hotlap.records import Comparison, Finding, FindingKind, Kept, Outcome, Seen, Skipped, Study
from hotlap.render import text
from hotlap.render.blocks import Tone
from hotlap.render.disturbance import finding_doubt
from hotlap.render.lever_table import COLOURS, MARKS, verdict_word

_LABELS: dict[FindingKind, tuple[str, str]] = {
    "cost": ("", "bold yellow"),
    "wrong-numbers": ("numbers", "bold red"),
    "risk": ("risk", "yellow"),
    "hint": ("hint", "cyan"),
}
_TO_DO = ("→", ">")
_OVERLAP = "Shares are of the unmodified step{or_of}, and do not add up where one cause leads to another."
_USUAL_WHOLE = "of a step"
_UNANSWERED = "No lever addresses it: see above for what to do."


def findings_list(study: Study) -> RenderableType:
    """Show all findings of a study in order, with the results of the levers tried."""
    costs = [it for it in study.findings if it.kind == "cost"]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True, min_width=6)
    table.add_column(overflow="fold")
    for number, it in enumerate(study.findings):
        if number:
            table.add_row("", "")
        table.add_row(Text(label(it), style=_LABELS[it.kind][1]), Group(*_body(it, study)))
    below = [Text(), Text(overlap(costs), style="dim italic")] if len(costs) > 1 else []
    return Padding(Group(table, *below), (0, 0, 0, 2), expand=False)


def overlap(findings: Sequence[Finding]) -> str:
    """Explain what the shares of findings are relative to, and that they do not add up."""
    of_the_run = any(text.whole_of(it.share) != _USUAL_WHOLE for it in findings)
    return _OVERLAP.format(or_of=" (of the run where that is said)" if of_the_run else "")


def label(finding: Finding) -> str:
    """``48 %``, ``up to 12 %`` for a bound, or the kind of a finding without a cost."""
    return text.cost(finding.share) if finding.kind == "cost" else _LABELS[finding.kind][0]


def answers(lever: str, findings: Sequence[Finding]) -> str:
    """``answers loader-bound (48 % of a step) and no-workers``, or nothing for a lever that addresses no finding."""
    found: dict[str, str] = {}
    for it in findings:
        if lever in it.levers and it.rule not in found:
            cost = f" ({text.cost(it.share)} {text.whole_of(it.share)})" if it.kind == "cost" else ""
            found[it.rule] = f"{text.one_line(it.rule)}{cost}"
    return f"answers {text.listed(list(found.values()))}" if found else ""


def answered(it: Finding, study: Study) -> list[tuple[Tone, str]]:
    """Describe the results of levers for a finding, or which levers address it."""
    if study.outcomes:
        return fates(it, study.outcomes)
    return [("neutral", answering(it.levers))] if it.levers else []


def fates(finding: Finding, outcomes: Sequence[Outcome]) -> list[tuple[Tone, str]]:
    """Describe the results for a finding: a sentence for each lever that addresses it."""
    if not finding.levers:
        return [("neutral", _UNANSWERED)]
    known = {it.lever: it for it in outcomes}
    return [_fate(lever, known.get(lever)) for lever in finding.levers]


def _fate(name: str, outcome: Outcome | None) -> tuple[Tone, str]:
    lever = text.one_line(name)
    if outcome is None:
        return "neutral", f"{lever} was not tried."
    tone, word = verdict_word(outcome)
    verdict = outcome.verdict
    if isinstance(verdict, Skipped):
        why = text.sentence(verdict.reason)
        return tone, f"{lever} is {word}. {why}" if verdict.already else f"{lever} was not tried. {why}"
    if isinstance(verdict, Seen) and verdict.bound is not None and exceeds_bound(verdict):
        return tone, f"{lever} can give {text.ratio(verdict.bound)} at most; one replicate showed more, which is noise."
    if isinstance(verdict, Seen):
        return tone, f"{lever} reached {text.ratio(verdict.speedup)} in one replicate, not proved."
    begin = f"Addressed by {lever}" if isinstance(verdict, Kept) else f"{lever} tried"
    comparison = getattr(verdict, "comparison", None)
    if not isinstance(comparison, Comparison):
        return tone, f"{begin}: {word}."
    return tone, f"{begin}: {text.speedup(comparison.speed.speedup, comparison.speed.confidence)}, {word}."


def _body(it: Finding, study: Study) -> Iterator[RenderableType]:
    yield Text(text.one_line(it.title), style="bold")
    where = place(it, study.workload.directory)
    yield Text("  ".join(filter(None, (rules(it), where, share_interval(it)))), style="dim")
    for line in it.evidence:
        yield Text(text.one_line(line), style="dim")
    if it.disturbed:
        yield Text(finding_doubt(it, study), style="yellow")
    if it.remedy:
        yield _Marked(_TO_DO, "default", text.one_line(it.remedy))
    for tone, words in answered(it, study):
        yield _Marked(MARKS[tone], COLOURS[tone], words) if study.outcomes else Text(words)


def rules(it: Finding) -> str:
    """``loader-bound``, or ``loader-bound (no-workers)`` if a rule has found the reason."""
    causes = text.listed([text.one_line(cause) for cause in it.causes])
    return f"{text.one_line(it.rule)} ({causes})" if causes else text.one_line(it.rule)


def answering(levers: Sequence[str]) -> str:
    """``The levers loader and compile answer it.``"""
    names = text.listed([text.one_line(it) for it in levers])
    return f"The lever {names} addresses it." if len(levers) == 1 else f"The levers {names} address it."


def place(it: Finding, directory: str) -> str:
    """The line, its file relative to the script's working directory or, of a library, from its package on."""
    if it.site is None or not it.site.file:
        return ""
    return f"{text.file_name(it.site.file, directory)}:{it.site.line}"


def share_interval(it: Finding) -> str:
    """``46 % to 50 % of a step``, or of another whole, or nothing without an interval."""
    if it.kind != "cost":
        return ""
    whole = text.whole_of(it.share)
    if it.share.is_bound or it.share.low == it.share.high:
        return "" if whole == _USUAL_WHOLE else whole
    return f"{text.share(it.share.low)} to {text.share(it.share.high)} {whole}"


@dataclass(frozen=True, slots=True)
class _Marked:
    """A sentence after a mark, which is ASCII or Unicode."""

    marks: tuple[str, str]
    colour: str
    words: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(self.marks[options.ascii_only], style=self.colour), Text(self.words))
        yield grid
