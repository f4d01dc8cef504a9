"""Precision and recall as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from bench.aa.report import rate
from bench.lint_precision.corpus import Hit, Key, Package
from bench.lint_precision.labels import Label
from bench.lint_precision.recall import Planted, Projects
from bench.lint_precision.score import SAMPLE, SEED, Score, total
from bench.report import table

_HEAD = ("rule", "hits", "packages", "looked at", "right", "debatable", "wrong", "right (95 %)", "not wrong (95 %)")


def corpus_section(title: str, packages: Sequence[Package], files: int, all_scores: Sequence[Score]) -> str:
    """One corpus: what was read, and each rule that found something in it."""
    found = [it for it in all_scores if it.hits]
    silent = [it for it in all_scores if not it.hits]
    names = ", ".join(f"{it.name} {it.version}".strip() for it in packages)
    lines = [
        f"## {title}",
        "",
        f"{files:,} files: {names}.",
        "",
        table(_HEAD, [*(_row(it) for it in found), _row(total(all_scores))]),
    ]
    if silent:
        lines += ["", "Without a hit, so nothing is known of them here: " + ", ".join(map(_name, silent)) + "."]
    sampled = [it for it in found if it.drawn < it.hits]
    if sampled:
        drawn = ", ".join(f"{it.code} ({it.drawn} of {it.hits})" for it in sampled)
        lines += ["", f"Of rules with more than {SAMPLE} hits a random sample was labelled (seed {SEED}): {drawn}."]
    return "\n".join(lines)


def judgements(drawn: Sequence[Hit], labels: Mapping[Key, Label]) -> str:
    """The hits that are not right, each with its reason, and those that were not read."""
    lines: list[str] = []
    for verdict, title in (("wrong", "Wrong"), ("debatable", "Debatable")):
        of = [(it, labels[it.key]) for it in drawn if it.key in labels and labels[it.key].verdict == verdict]
        lines += ["", f"## {title}", ""]
        lines += [f"- {_place(it)}: `{it.key.line}`. {label.reason}" for it, label in of] or ["None."]
    unlabelled = [it for it in drawn if it.key not in labels]
    lines += ["", "## Not looked at", ""]
    lines += [f"- {_place(it)}: `{it.key.line}`" for it in unlabelled] or ["None of those that were drawn."]
    return "\n".join(lines)


def gone_section(drawn: Sequence[Hit], labels: Mapping[Key, Label]) -> str:
    """Labels of hits that no longer exist, since the rules were fixed."""
    there = {it.key for it in drawn}
    gone = [it for key, it in labels.items() if key not in there]
    counts = Counter(it.verdict for it in gone)
    lines = [
        "## What reading changed",
        "",
        "Where the hits showed a rule to be wrong for a clear reason, the rule was fixed and an example pins the "
        f"case, so these shares are of rules that have seen this code. Labels whose hit is gone since: {len(gone)}, "
        f"of which {counts['wrong']} wrong, {counts['debatable']} debatable, {counts['right']} right.",
    ]
    if gone:
        lines += ["", *(f"- {it.code} {it.package} {it.path}: `{it.line}`. {it.verdict}: {it.reason}" for it in gone)]
    return "\n".join(lines)


def recall_section(planted: Sequence[Planted]) -> str:
    """What was planted, by rule and kind, and what was missed."""
    ordered = sorted(planted, key=lambda it: (not it.marked, it.code, it.what))
    lines = [
        "## Recall on planted mistakes",
        "",
        "The rules' own examples do not count. A change may do no harm in its place (an optimizer that takes a "
        "closure, a step behind a condition, a model that is evaluated once, at the end); it counts as missed all the "
        "same.",
    ]
    for marked, what in (
        (True, "Causes that are marked in `tests/causes` and can be seen without running"),
        (False, "Our own workloads and examples with one thing changed by its text"),
    ):
        of = [it for it in ordered if it.marked is marked]
        if not of:
            continue
        found = sum(it.found for it in of)
        rows = []
        for (code, kind), group in groupby(of, key=lambda it: (it.code, it.what)):
            some = list(group)
            rows.append([code, kind, str(len(some)), str(sum(it.found for it in some))])
        head = ["rule", "planted", "scripts", "found"]
        lines += ["", f"{what}: found {found} of {len(of)}, {rate(found, len(of))}.", "", table(head, rows)]
    missed = [f"- {it.code}, {it.what}: {it.file}" for it in ordered if not it.found]
    if missed:
        lines += ["", "Missed:", "", *missed]
    return "\n".join(lines)


def projects_section(of: Projects) -> str:
    """What was marked in projects of several files, by rule, and what was missed."""
    found = sum(it.found for it in of.marked)
    alone = sum(it.found_alone for it in of.marked)
    lines = [
        "## Recall across files",
        "",
        f"Small projects in `bench/lint_precision/projects` ({of.files} files), written as people write them; one has "
        f"no mistake. Linted as projects: found {found} of {len(of.marked)}, {rate(found, len(of.marked))}. Each file "
        f"by itself: {alone}. Hits of these rules in lines that are not marked: {len(of.false_alarms)}. At the first "
        "count 11 of 19 were found; methods of derived classes, and files that are imported next to one that "
        "trains, were added after that.",
        "",
        table(
            ["rule", "marked", "found", "file by itself"],
            [
                [code, str(len(some)), str(sum(it.found for it in some)), str(sum(it.found_alone for it in some))]
                for code in sorted({it.code for it in of.marked})
                for some in [[it for it in of.marked if it.code == code]]
            ],
        ),
    ]
    missed = [f"- {it.code}: {it.file}:{it.line}" for it in of.marked if not it.found]
    if missed:
        lines += ["", "Missed:", "", *missed]
    if of.false_alarms:
        lines += ["", "Not marked:", "", *(f"- {it}" for it in of.false_alarms)]
    return "\n".join(lines)


def _row(it: Score) -> list[str]:
    shares = [str(share) if share is not None else "-" for share in (it.precision, it.not_wrong)]
    packages = str(it.packages) if it.code else ""
    return [
        _name(it), str(it.hits), packages, str(it.labelled), str(it.right), str(it.debatable), str(it.wrong), *shares
    ]  # fmt: skip


def _name(it: Score) -> str:
    return f"{it.code} {it.name}".strip()


def _place(hit: Hit) -> str:
    return f"{hit.key.code} {hit.key.package} {hit.key.path}:{hit.number}"
