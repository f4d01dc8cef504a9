"""``python -m bench.lint_precision --out docs/benchmarks/lint-precision``: how often the lint rules are right.

Lints the installed packages' own code and our scripts, and with ``--further FOLDER`` the packages of ``further.txt``
and ``held_out.txt`` there, joins the hits with the labels in ``labels.jsonl``, and counts. ``--unlabelled`` prints what
still needs a label, as lines for that file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.lint_precision import report
from bench.lint_precision.corpus import FURTHER, HELD_OUT, Hit, Key, hits_in, installed, listed
from bench.lint_precision.labels import Label, read_labels
from bench.lint_precision.recall import planted, projects
from bench.lint_precision.score import drawn_of_rules, scores
from bench.report import command_line, write
from hotlap.source.lint.api import all_rules


def main(arguments: list[str] | None = None) -> int:
    """Count, and write the report."""
    parser = argparse.ArgumentParser(prog="python -m bench.lint_precision", description=__doc__)
    parser.add_argument("--out", type=Path, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--further", type=Path, metavar="FOLDER", help="the folder of the packages of the two lists")
    parser.add_argument("--unlabelled", action="store_true", help="print the hits without a label instead")
    options = parser.parse_args(arguments)
    labels = read_labels()
    rules = {code: rule.name for code, rule in all_rules().items()}
    corpora = [("Packages that the tests install, and our own scripts", installed())]
    if options.further is not None:
        corpora.append(("Further packages", listed(FURTHER, options.further)))
        title = "Packages held out: the rules had not seen them, but for two hits that are gone"
        corpora.append((title, listed(HELD_OUT, options.further)))
    drawn: list[Hit] = []
    known: set[tuple[str, str]] = set()
    sections: list[str] = []
    data: list[dict[str, object]] = []
    for title, packages in corpora:
        hits, files = hits_in(packages, known)
        drawn += drawn_of_rules(hits)
        of_rules = scores(hits, labels, rules)
        sections.append(report.corpus_section(title, packages, files, of_rules))
        data.append({"corpus": title, "files": files, "rules": [asdict(it) for it in of_rules]})
    if options.unlabelled:
        _print_unlabelled(drawn, labels)
        return 0
    if options.out is None:
        parser.error("--out says where the report goes")
    mistakes, in_projects = planted(), projects()
    closing = (
        report.projects_section(in_projects),
        report.recall_section(mistakes),
        report.gone_section(drawn, labels),
        report.judgements(drawn, labels).strip(),
    )
    text = "\n\n".join([*sections, *closing])
    write(
        options.out,
        title="How right the lint rules are",
        command=command_line("bench.lint_precision"),
        text=text,
        data={"corpora": data, "planted": [asdict(it) for it in mistakes], "projects": asdict(in_projects)},
    )
    return 0


def _print_unlabelled(drawn: Sequence[Hit], labels: Mapping[Key, Label]) -> None:
    for hit in drawn:
        if hit.key not in labels:
            named = {name: getattr(hit.key, name) for name in ("package", "version", "path", "code", "line")}
            sys.stdout.write(
                f"{hit.number}\t{json.dumps({**named, 'verdict': '', 'reason': ''}, ensure_ascii=False)}\n"
            )


if __name__ == "__main__":
    raise SystemExit(main())
