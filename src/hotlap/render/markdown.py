"""A study as Markdown for a pull request: the sentence, what changed, and the rest behind lines that open.

It is what GitHub and GitLab show: tables, and ``<details>`` with Markdown in them. Whatever a script said is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hotlap import plan
from hotlap.records import Costs, Kept, Study
from hotlap.render import text
from hotlap.render.account import PHASES, account_remarks, rate_of, samples_factor
from hotlap.render.batch_sizes import HEADINGS, batch_remark, batch_rows
from hotlap.render.disturbance import account_doubt, batch_doubt, finding_doubt, step_takes
from hotlap.render.findings import answered, label, place, rules, share_interval
from hotlap.render.headline import headline
from hotlap.render.isolation import isolation_lines, study_warnings
from hotlap.render.kinds.api import Headline, presenter_of
from hotlap.render.lever_table import MARKS, footnote, skipped_rows, tried_rows
from hotlap.render.presentable import presentable
from hotlap.render.terminal import ceiling_meaning, ceiling_rates, cost_sentences, machine_line

_MOST_FINDINGS = 30


def markdown_report(study: Study, *, costs: Costs | None = None) -> str:
    """The whole report; ends with an empty line, so that it may be appended to."""
    study = presentable(study, study.workload.directory)
    found = headline(study)
    lines = [f"### hotlap: {_code(text.command(study.workload))}", "", f"**{text.markdown(found.sentence)}**", ""]
    lines += _figures(study)
    if costs is not None and costs.price is not None:
        lines += [f"- {text.markdown(it)}" for it in cost_sentences(study, costs)] + [""]
    for title, body in _sections(study, found):
        lines += ["<details>", f"<summary>{text.markdown(title)}</summary>", "", *body, "", "</details>", ""]
    return "\n".join([*lines, ""])


def _figures(study: Study) -> list[str]:
    """What changed, side by side; for a study without a plan what was found."""
    before, after = study.account_before, study.account_after
    if before is None or before.wall <= 0:
        return []
    name, before_rate = rate_of(before)
    rate = text.number(before_rate)
    if after is None or after.wall <= 0 or not study.plan.settings:
        return [f"A step {step_takes(study, before.wall)}, which is {rate} {name}.", ""]
    step = text.duration(after.wall * samples_factor(before, after))
    rows = [
        ("mean step", text.duration(before.wall), step),
        (name, rate, text.number(rate_of(after)[1])),
    ]
    verification = study.verification
    if verification is not None and verification.baseline_peak_bytes and verification.candidate_peak_bytes:
        peaks = text.size(verification.baseline_peak_bytes), text.size(verification.candidate_peak_bytes)
        rows.append(("peak memory", *peaks))
    return [*_table(("", ">before", ">after"), rows), ""]


def _sections(study: Study, found: Headline) -> Iterator[tuple[str, list[str]]]:
    beside = [f"- {text.markdown(it)}" for it in found.beside]
    if beside or found.output:
        yield "What this rests on", [*beside, *(["", *_block(found.output)] if found.output else [])]
    if study.account_before is not None and study.account_before.wall > 0:
        yield "Where a step's time goes", list(_account(study))
    if study.outcomes:
        kept = sum(1 for it in study.outcomes if isinstance(it.verdict, Kept))
        yield f"Levers: {kept} of {len(study.outcomes)} kept", list(_levers(study))
    if study.ceilings:
        yield "Ceilings", list(_ceilings(study))
    if study.batch_rates:
        yield (
            "Batch sizes",
            [
                *_table(HEADINGS, batch_rows(study.batch_rates)),
                "",
                text.markdown(batch_remark(study.batch_rates, batch_doubt(study))),
            ],
        )
    if study.findings:
        yield f"Findings: {len(study.findings)}", list(_findings(study))
    if study.plan.settings:
        versions = dict(study.machine.library_versions)
        toml = plan.to_toml(study.plan, torch_version=versions.get("torch", ""), study=study.identifier)
        yield "The plan", _block(text.clean(toml).rstrip("\n"), "toml")
    if study.hosts:
        yield text.HOSTS_TITLE, [text.markdown(", ".join(text.hosts(study.hosts)))]
    warnings = study_warnings(study)
    if warnings:
        yield text.count(len(warnings), "warning").capitalize(), [f"- {text.markdown(it)}" for it in warnings]
    yield "Machine, versions and what to do next", list(_rest(study))


def _account(study: Study) -> Iterator[str]:
    before, after = study.account_before, study.account_after
    assert before is not None
    factor = samples_factor(before, after)
    accounts = [("before" if after else "unmodified", before, 1.0)]
    if after is not None:
        accounts.append(("after" if study.plan.settings else "given up", after, factor))
    rows = []
    for field, name, *_ in (*PHASES, ("wall", "whole step")):
        cells = [name]
        for _, account, by in accounts:
            part = getattr(account, field)
            cells += [text.duration(part * by), text.share(part / account.wall) if account.wall else ""]
        rows.append(cells)
    yield from _table(("", *(it for name, *_ in accounts for it in (f">{name}", ">share"))), rows)
    for remark in account_remarks(before, after, factor, doubt=account_doubt(study), run=study.run_account):
        yield ""
        yield text.markdown(remark)


def _levers(study: Study) -> Iterator[str]:
    rows = []
    for it in tried_rows(study.outcomes, study.account_before):
        speedup = it.speedup.replace("  ", " (") + ")" if it.speedup else ""
        why = " ".join(filter(None, (it.reason, *it.below)))
        name = f"{it.lever}: {it.values}" if it.values else it.lever
        rows.append((f"{MARKS[it.tone][0]} {name}", speedup, it.parity, it.memory, it.verdict, why))
    if rows:
        yield from _table(("lever", ">speedup (interval)", "numbers", ">memory", "verdict", "why"), rows)
        yield ""
        yield text.markdown(footnote(study.outcomes))
    skipped = skipped_rows(study.outcomes)
    if skipped:
        yield from ("", "Not tried:", "")
        yield from (f"- {text.markdown(lever)}: {text.markdown(why)}" for lever, why in skipped)


def _ceilings(study: Study) -> Iterator[str]:
    rows = []
    for it in study.ceilings:
        per_sample = text.duration(it.seconds_per_sample) if it.seconds_per_sample is not None else ""
        bound = text.ratio(it.bound_speedup) if it.bound_speedup is not None else ""
        meaning = ceiling_meaning(it, study)
        rows.append((it.name.replace("-", " "), per_sample, bound, meaning))
    yield from _table(("", ">per sample", ">at most", "what it means"), rows)


def _findings(study: Study) -> Iterator[str]:
    for it in study.findings[:_MOST_FINDINGS]:
        about = (rules(it), place(it, study.workload.directory), share_interval(it))
        yield f"- **{text.markdown(f'{label(it)}: {it.title}')}** {text.markdown(' · '.join(filter(None, about)))}"
        yield from (f"  - {text.markdown(line)}" for line in (*it.evidence, finding_doubt(it, study)) if line)
        if it.remedy:
            yield f"  - What to do: {text.markdown(it.remedy)}"
        yield from (f"  - {text.markdown(words)}" for _, words in answered(it, study))
    if len(study.findings) > _MOST_FINDINGS:
        yield f"- and {len(study.findings) - _MOST_FINDINGS} more"


def _rest(study: Study) -> Iterator[str]:
    if study.machine.processor or study.machine.accelerators:
        yield f"- {text.markdown(machine_line(study.machine))}"
        yield from (f"- {text.markdown(it)}" for it in isolation_lines(study.machine))
    rates = [f"{name} {rate}" for name, rate in ceiling_rates(study.machine)]
    if rates:
        yield f"- {text.markdown('Reached: ' + ', '.join(rates))}"
    versions = ", ".join(f"{name} {version}" for name, version in study.machine.library_versions)
    if versions:
        yield f"- {text.markdown(versions)}"
    began = " ".join(filter(None, (study.hotlap_version, study.identifier and f"study {study.identifier}")))
    yield f"- {text.markdown(f'hotlap {began}'.strip())}"
    if study.source.git_revision:
        yield f"- {text.markdown(f'git {study.source.git_revision}')}"
    for command, purpose in presenter_of(study.kind).next_commands(study, "hotlap.toml"):
        yield f"- {_code(command)} {text.markdown(purpose)}"


# ---------------------------------------------------------------------------------------------
# Markdown
# ---------------------------------------------------------------------------------------------


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """``>`` before a heading aligns its column to the right; every cell is escaped."""
    yield f"| {' | '.join(text.markdown(it.removeprefix('>')) for it in headings)} |"
    yield f"|{'|'.join('--:' if it.startswith('>') else '---' for it in headings)}|"
    for row in rows:
        yield f"| {' | '.join(map(text.markdown, row))} |"


def _code(words: str) -> str:
    """A command or a path as code, whatever backticks are in it."""
    shown = text.one_line(words, limit=1000)
    fence = "`" * (_longest_run(shown) + 1)
    room = " " if "`" in shown else ""
    return f"{fence}{room}{shown}{room}{fence}"


def _block(words: str, language: str = "") -> list[str]:
    """Several lines as they are; the fence is longer than any run of backticks in them."""
    fence = "`" * max(3, _longest_run(words) + 1)
    return [f"{fence}{language}", *words.split("\n"), fence]


def _longest_run(words: str) -> int:
    runs = [0]
    for character in words:
        runs.append(runs[-1] + 1 if character == "`" else 0)
    return max(runs)
