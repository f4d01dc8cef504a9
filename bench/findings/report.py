"""The findings' precision and recall as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from bench.findings.score import Score
from bench.report import measured_again, table


def markdown(scores: Sequence[Score], left_out: Sequence[tuple[str, str]], *, again: Sequence[str] = ()) -> str:
    """The totals, a line for each script, which were measured ``again`` after an earlier run, and what was not run."""
    planted = [it for it in scores if it.wanted]
    clean = [it for it in scores if not it.wanted]
    wanted = sum(len(it.wanted) for it in planted)
    found = wanted - sum(len(it.missed) for it in planted)
    said = sum(len(it.found) for it in scores)
    false = sum(len(it.false) for it in scores)
    lines = [
        f"`hotlap profile` on {len(planted)} scripts with a planted cause and {len(clean)} clean ones "
        "(`tests/causes`).",
        "",
        f"- recall: {_share(found, wanted)} planted causes found",
        f"- ranked first: {_share(sum(it.ranked_first and not it.missed for it in planted), len(planted))} scripts",
        f"- right line: {_share(sum(not it.wrong_lines for it in planted), len(planted))} scripts",
        f"- precision: {_share(said - false, said)} kinds of findings are true of their script",
        f"- clean scripts without a finding: {_share(sum(not it.found for it in clean), len(clean))}",
        "",
        table(["script", "planted", "found", "judgement"], [_row(it) for it in scores]),
    ]
    lines += measured_again(again)
    if left_out:
        lines += ["", "Not run here:", "", *(f"- {name}: needs {lack}" for name, lack in left_out)]
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({100 * part / whole:.0f} %)" if whole else "")


def _row(it: Score) -> list[str]:
    return [it.name, ", ".join(it.wanted) or "nothing", ", ".join(it.found) or "nothing", it.in_words()]
