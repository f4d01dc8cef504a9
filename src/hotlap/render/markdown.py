"""A study as Markdown for a pull request: the headline, what changed, and the rest in collapsed sections.

It uses what GitHub and GitLab support: tables, and ``<details>`` with Markdown in them. A script's text is escaped.
"""

from __future__ import annotations

from hotlap.diagnose.profile import Profile
from hotlap.records import Costs, Study
from hotlap.render import markup, text
from hotlap.render.cost import cost_sentences
from hotlap.render.disturbance import step_takes
from hotlap.render.headline import headline
from hotlap.render.kinds.api import Headline
from hotlap.render.material import Material
from hotlap.render.presentable import presentable
from hotlap.render.sections.api import Section, markdown_sections
from hotlap.render.step_times import step_times


def markdown_report(study: Study, *, costs: Costs | None = None, profile: Profile | None = None) -> str:
    """The whole report; it ends with an empty line, so that it can be appended to."""
    study = presentable(study, study.workload.directory)
    found = headline(study)
    lines = [f"### hotlap: {markup.code(text.command(study.workload))}", "", f"**{text.markdown(found.sentence)}**", ""]
    lines += _figures(study)
    if costs is not None and costs.price is not None:
        lines += [f"- {text.markdown(it)}" for it in cost_sentences(study, costs)] + [""]
    for it in (_evidence(found), *markdown_sections(Material(study=study, profile=profile, costs=costs))):
        lines += _folded(it)
    return "\n".join([*lines, ""])


def _figures(study: Study) -> list[str]:
    """A table of what changed or, for a study without a plan, of what was found."""
    times = step_times(study)
    if times is None:
        return []
    rate = text.number(times.rate)
    if times.seconds_with_plan is None or times.rate_with_plan is None:
        return [
            f"A {times.unit} {step_takes(study, times.seconds)}, which is {rate} {times.rate_name}.",
            "",
        ]
    rows = [
        (
            f"mean {times.unit}",
            text.duration(times.seconds),
            text.duration(times.seconds_with_plan),
        ),
        (times.rate_name, rate, text.number(times.rate_with_plan)),
    ]
    verification = study.verification
    if verification is not None and verification.baseline_peak_bytes and verification.candidate_peak_bytes:
        peaks = text.size(verification.baseline_peak_bytes), text.size(verification.candidate_peak_bytes)
        rows.append(("peak memory", *peaks))
    return [*markup.table(("", ">before", ">after"), rows), ""]


def _evidence(found: Headline) -> Section[str]:
    """The details of the headline, as a section of its own."""
    output = ["", *markup.block(found.output)] if found.output else []
    return Section("What this rests on", (*markup.bullets(found.details), *output))


def _folded(it: Section[str]) -> list[str]:
    """A collapsed section; nothing if it is empty."""
    if not it.body:
        return []
    body = "\n".join(it.body).rstrip("\n")
    return ["<details>", f"<summary>{text.markdown(it.title)}</summary>", "", body, "", "</details>", ""]
