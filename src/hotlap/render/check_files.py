"""A check's answer for other programs: Markdown for a job's summary, and JUnit XML."""

from __future__ import annotations

from xml.etree import ElementTree

from hotlap.records import Check, CheckVerdict
from hotlap.render import text
from hotlap.render.check import WORDS, details, verdicts
from hotlap.render.presentable import presentable


def check_markdown(found: Check) -> str:
    """A heading, a table of the parts, and their basis.

    It ends with an empty line, so that it can be appended to. Text from outside cannot become markup.
    """
    found = presentable(found, found.workload.directory)
    command = text.markdown(text.command(found.workload))
    lines = [f"### hotlap check: {WORDS[found.verdict].lower()}", "", command, "", "| | | |", "|---|---|---|"]
    for name, verdict, said in verdicts(found):
        lines.append(f"| {name} | **{verdict or 'left out'}** | {text.markdown(said)} |")
    lines += ["", *(f"- {text.markdown(it)}" for it in details(found)), "", ""]
    return "\n".join(lines)


def check_junit(found: Check, *, inconclusive_is: CheckVerdict) -> str:
    """One test suite with a test for each part, in the dialect that Jenkins, GitLab and most others read.

    An inconclusive part is an error of the test, unless ``inconclusive_is`` makes it a failure, or skips it with its
    reason.
    """
    found = presentable(found, found.workload.directory)
    cases = list(verdicts(found))
    kinds = [_junit_kind(verdict, inconclusive_is) for _, verdict, _ in cases]
    seconds = f"{found.spent_seconds:.3f}"
    counts = {"tests": str(len(cases)), "time": seconds}
    counts |= {name: str(kinds.count(kind)) for name, kind in (("failures", "failure"), ("errors", "error"))}
    root = ElementTree.Element("testsuites", {"name": "hotlap", **counts})
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": "hotlap check", **counts, "skipped": str(kinds.count("skipped"))}
    )
    command = text.command(found.workload)
    for (name, verdict, said), kind in zip(cases, kinds, strict=True):
        case = {"classname": f"hotlap.check.{command}", "name": name, "time": seconds if name == "speed" else "0.000"}
        made = ElementTree.SubElement(suite, "testcase", case)
        if kind:
            attributes = {"message": said} if kind == "skipped" else {"message": said, "type": verdict or ""}
            ElementTree.SubElement(made, kind, attributes)
    ElementTree.SubElement(suite, "system-out").text = "\n".join(details(found))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _junit_kind(verdict: CheckVerdict | None, inconclusive_is: CheckVerdict) -> str:
    if verdict == "inconclusive":
        return {"passed": "skipped", "failed": "failure", "inconclusive": "error"}[inconclusive_is]
    return {"passed": "", "failed": "failure", None: "skipped"}[verdict]
