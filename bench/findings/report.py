"""The findings' precision and recall as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from bench.findings.claims import Comparison, compared
from bench.findings.planted import Planted
from bench.findings.score import Score
from bench.findings.truth import Truth
from bench.report import measured_again, table

_NO_HARDWARE = (
    "**Every script ran on a simulated device** (`tests/simulated`), whose times follow from a table of rates. What is "
    "counted here is whether the rules reason correctly about the evidence of a device: it proves logic, never speed, "
    "and no share or time of these findings says anything about real hardware. Large work is put on the simulated "
    "timeline without being computed, and Python code takes no time there.",
)


def markdown(
    known: Sequence[tuple[Planted, Score]],
    left_out: Sequence[tuple[str, str]],
    *,
    busy: int = 0,
    truths: Sequence[Truth] = (),
    again: Sequence[str] = (),
    simulated: bool = False,
) -> str:
    """The totals, a line for each script and for each rule, what findings claim next to what cures save (``truths``),
    and what was not run. ``busy`` is how many cores did other work meanwhile, ``again`` what was measured after an
    earlier run, and ``simulated`` says that there was no such device."""
    scores = [it for _, it in known]
    lines = [*_NO_HARDWARE, ""] if simulated else []
    header = ["script", "planted", "found", "judgement"]
    lines += [*_totals(known, busy), "", table(header, [_row(it) for it in scores])]
    lines += ["", *_by_rule(scores)]
    lines += measured_again(again)
    if truths:
        lines += ["", *_claims(compared(scores, truths))]
    if left_out:
        lines += ["", "Not run here:", "", *(f"- {name}: needs {lack}" for name, lack in left_out)]
    return "\n".join(lines)


def _totals(known: Sequence[tuple[Planted, Score]], busy: int) -> list[str]:
    planted = [score for it, score in known if it.first]
    clean = [score for it, score in known if not it.first]
    lined = [(set(it.lines()), score) for it, score in known if it.lines()]
    right = sum(not score.wrong_lines and rules.isdisjoint(score.missed) for rules, score in lined)
    quiet = sum(not it.false and not it.trouble for it in clean)
    projects = sum(bool(it.first) and it.is_project for it, _ in known)
    wanted = sum(len(it.wanted) for it in planted)
    said = sum(len(it.found) for _, it in known)
    false = sum(len(it.false) for _, it in known)
    work = f" while other work kept {busy} core{'s' * (busy != 1)} busy" if busy else ""
    return [
        f"`hotlap profile` on {len(planted)} scripts with a planted cause, {projects} of them projects of several "
        f"files, and {len(clean)} clean ones (`tests/causes`){work}. What is true of those that need no accelerator "
        "was measured without hotlap, with and without the cause ([figures](findings-truth.md)).",
        "",
        f"- recall: {_share(wanted - sum(len(it.missed) for it in planted), wanted)} planted causes found",
        f"- precision: {_share(said - false, said)} kinds of findings are true of their script",
        f"- ranked first: {_share(sum(it.ranked_first and not it.missed for it in planted), len(planted))} scripts; a "
        "hazard, which costs no time, has no rank and counts as first",
        f"- right line: {_share(right, len(lined))} scripts in which a line is marked",
        f"- clean scripts without a false finding: {_share(quiet, len(clean))}",
    ]


def _claims(comparisons: Sequence[Comparison]) -> list[str]:
    fine = sum(it.is_borne_out is True for it in comparisons)
    refuted = sum(it.is_borne_out is False for it in comparisons)
    header = ["script", "rule", "claimed", "saved by hand", "borne out"]
    return [
        f"What findings claim next to what curing the cause by hand saves: {_share(fine, len(comparisons))} claims are "
        f"borne out, {refuted} are refuted, and for the others the interval of the saving is too wide to say. The "
        "claim is a share of what the finding names, the saving one of what was measured.",
        "",
        table(header, [_claim_row(it) for it in comparisons]),
    ]


def _claim_row(it: Comparison) -> list[str]:
    claim, truth = it.claim, it.truth
    saved = [100 * (value or 0.0) for value in (truth.saved, truth.low, truth.high)]
    return [
        it.script,
        claim.rule,
        f"{'up to ' * claim.is_bound}{100 * claim.share:.0f} % {claim.unit}",
        f"{saved[0]:.0f} % ({saved[1]:.0f} to {saved[2]:.0f} %)",
        {True: "yes", False: "NO", None: "open"}[it.is_borne_out],
    ]


def _by_rule(scores: Sequence[Score]) -> list[str]:
    """Hits and false alarms of every rule that was planted or found."""
    rules = sorted({rule for it in scores for rule in (*it.wanted, *it.found)})
    rows = []
    for rule in rules:
        planted = sum(rule in it.wanted for it in scores)
        missed = sum(rule in it.missed for it in scores)
        false = sum(rule in it.false for it in scores)
        true = sum(rule in it.found for it in scores) - (planted - missed) - false
        rows.append([f"`{rule}`", *(str(it or "-") for it in (planted, planted - missed, true, false))])
    header = ["rule", "planted", "found where planted", "found where true as well", "false alarms"]
    return ["By rule, in how many scripts:", "", table(header, rows)]


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({100 * part / whole:.0f} %)" if whole else "")


def _row(it: Score) -> list[str]:
    return [it.name, ", ".join(it.wanted) or "nothing", ", ".join(it.found) or "nothing", it.in_words()]
