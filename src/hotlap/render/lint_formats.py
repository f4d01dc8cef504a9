"""The findings of lint for other programs: JSON, SARIF 2.1.0, and GitHub's annotations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from hotlap import __version__
from hotlap.render import text
from hotlap.render.json import document_json
from hotlap.source.lint.records import LintFinding, LintPlace, LintProblem, LintReport, LintRule

_SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_MOST_ANNOTATION_CHARACTERS = 1000


def as_json(report: LintReport) -> str:
    """Everything as one document, without the rules' pages."""
    document = {
        "checked_files": report.checked_files,
        "findings": report.findings,
        "problems": report.problems,
        "fixed": dict(report.fixed),
    }
    return document_json("lint", document, exact=True)


def as_sarif(report: LintReport) -> str:
    """One run in SARIF 2.1.0, columns in code points. SARIF has no lines of notebooks; messages contain the place."""
    index = {rule.code: number for number, rule in enumerate(report.rules)}
    document = {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "hotlap",
                        "semanticVersion": __version__,
                        "rules": [_sarif_rule(it) for it in report.rules],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": not report.problems,
                        "toolExecutionNotifications": [_sarif_problem(it) for it in report.problems],
                    }
                ],
                "results": [_sarif_result(it, index) for it in report.findings],
            }
        ],
    }
    return json.dumps(document, indent=2)


def as_github(report: LintReport) -> str:
    """One workflow command a line, as GitHub Actions reads them; everything that came from a file is escaped."""
    return "\n".join([*map(_annotation, report.findings), *map(_problem_annotation, report.problems)])


def _sarif_rule(rule: LintRule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": f"{rule.title}."},
        "help": {"text": rule.page, "markdown": rule.page},
        "defaultConfiguration": {"level": "warning"},
        "properties": {"group": rule.group, "fix": rule.fix},
    }


def _sarif_result(finding: LintFinding, index: Mapping[str, int]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": "warning",
        "message": {"text": _message(finding)},
        "locations": [{"physicalLocation": _sarif_place(finding.file, finding.place)}],
    }
    if finding.code in index:
        result["ruleIndex"] = index[finding.code]
    if finding.notes:
        result["relatedLocations"] = [
            {"physicalLocation": _sarif_place(it.file or finding.file, it.place), "message": {"text": it.message}}
            for it in finding.notes
        ]
    return result


def _sarif_problem(problem: LintProblem) -> dict[str, Any]:
    where: dict[str, Any] = {"artifactLocation": {"uri": _uri(problem.file)}}
    if problem.line and problem.cell is None:
        where["region"] = {"startLine": problem.line}
    return {"level": "error", "message": {"text": problem.what}, "locations": [{"physicalLocation": where}]}


def _sarif_place(file: str, place: LintPlace) -> dict[str, Any]:
    found: dict[str, Any] = {"artifactLocation": {"uri": _uri(file)}}
    if place.cell is None:
        found["region"] = {
            "startLine": place.line,
            "startColumn": place.column,
            "endLine": max(place.line, place.end_line),
            "endColumn": place.end_column or place.column,
        }
    return found


def _uri(file: str) -> str:
    """A file as a URI: absolute paths with a scheme, relative ones as they are."""
    path = PurePath(file)
    quoted = quote(path.as_posix())
    return f"file://{quoted}" if path.is_absolute() else quoted


def _annotation(finding: LintFinding) -> str:
    place = finding.place
    properties = {"file": finding.file, "title": f"{finding.code} {finding.rule}"}
    if place.cell is None:
        properties |= {"line": str(place.line), "col": str(place.column)}
        if place.end_line == place.line and place.end_column > place.column:
            properties |= {"endLine": str(place.end_line), "endColumn": str(place.end_column)}
    return _command("warning", properties, _message(finding))


def _problem_annotation(problem: LintProblem) -> str:
    properties = {"file": problem.file, "title": "hotlap lint"}
    if problem.line and problem.cell is None:
        properties["line"] = str(problem.line)
    return _command("error", properties, problem.what)


def _command(level: str, properties: Mapping[str, str], message: str) -> str:
    said = ",".join(f"{key}={_escaped(text.one_line(value), ':,')}" for key, value in properties.items())
    shown = text.one_line(message, limit=_MOST_ANNOTATION_CHARACTERS)
    return f"::{level} {said}::{_escaped(shown)}"


def _escaped(value: str, also: str = "") -> str:
    """Characters that end a property, a line or a command, written as GitHub's own toolkit writes them."""
    return "".join(f"%{ord(it):02X}" if it in f"%\r\n{also}" else it for it in value)


def _message(finding: LintFinding) -> str:
    cell = f"cell {finding.place.cell}, line {finding.place.line}: " if finding.place.cell is not None else ""
    return f"{cell}{finding.message}"
