"""A profile: where the time goes, and why; no lever is tried."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.history import Entry
from hotlap.records import Finding, Study
from hotlap.render import text
from hotlap.render.blocks import Fact
from hotlap.render.brief import NO_BREAK, Row
from hotlap.render.carried import carried_options
from hotlap.render.disturbance import in_sentence, on_threads_left, while_busy
from hotlap.render.findings import label, place
from hotlap.render.kinds.api import Headline
from hotlap.render.run_account import bound_sentence
from hotlap.render.step_words import step_words


def headline(study: Study) -> Headline:
    """How many causes were found, and what the step is made of; a busy machine is mentioned once."""
    found = _answer(study)
    return _answer(study, busy_is_said=True) if "while others used" in found.sentence else found


_NOT_PROFILED = ("The script was not profiled", "No steps were profiled", "The profiled launch")


def _why_not_profiled(study: Study) -> str:
    """The warning that says why there is no evidence of a profiled launch; without one, only that there is none."""
    why = (text.sentence(it) for it in study.warnings if it.startswith(_NOT_PROFILED))
    return next(why, _NOT_PROFILED[0] + ".")


def _answer(study: Study, *, busy_is_said: bool = False) -> Headline:
    details = [*step_words(study, busy_is_said=busy_is_said), *_run_words(study)]
    if study.status != "finished":
        why = [text.sentence(study.status_text)] if study.status_text else []
        return Headline("neutral", "Not finished: not all causes were checked.", (*why, *details))
    costs = [it for it in study.findings if it.kind == "cost"]
    wrong = [it for it in study.findings if it.kind == "wrong-numbers"]
    others = len(study.findings) - len(costs) - len(wrong)
    if others:
        details.append(f"Also {text.count(others, 'risk or hint', 'risks and hints')}; see below.")
    if not study.profiled_steps:
        details.append(f"Most causes could not be checked. {_why_not_profiled(study)}")
    if wrong:
        return Headline("bad", f"Fix the numbers first: {text.one_line(wrong[0].title)}", tuple(details))
    if costs:
        largest = f"{text.cost(costs[0].share)} {text.whole_of(costs[0].share)}"
        sentence = f"1 cause of lost time was found; it costs {largest}."
        if len(costs) > 1:
            sentence = f"{len(costs)} causes of lost time were found; the largest costs {largest}."
        return Headline("neutral", in_sentence(study, sentence), tuple(details))
    if not study.profiled_steps:
        return Headline("neutral", "No cause of lost time was found in the time account.", tuple(details))
    busy = while_busy(study, "account", "profile") or on_threads_left(study)
    if busy:
        return Headline("neutral", f"No known cause of lost time was found {busy}: profile again.", tuple(details))
    return Headline("good", "No known cause of lost time was found.", tuple(details))


def _run_words(study: Study) -> Iterator[str]:
    """The largest gain of the whole run from tuning its steps."""
    bound = bound_sentence(study.run_account) if study.run_account is not None else ""
    if bound:
        yield bound


def what_was_done(study: Study) -> str:
    """How the figures were obtained."""
    script = text.one_line(study.workload.target, limit=120)
    return (
        f"hotlap ran {script} unmodified on one machine, measured where the time of a training step goes, and "
        "looked for known causes of lost time. Nothing was changed."
    )


def facts(study: Study) -> Iterator[Fact]:
    """How many causes were found."""
    yield Fact("Causes found", str(len(study.findings)))


_FINDINGS_SHOWN = 4


def summary_rows(study: Study) -> Iterator[Row]:
    """The costliest findings: what each costs, its line, and what to do."""
    items = tuple(_finding(it, study) for it in study.findings)
    yield Row("Findings", items, is_list=True, most_items=_FINDINGS_SHOWN, most=14, least=3)


def _finding(it: Finding, study: Study) -> str:
    where = place(it, study.workload.directory)
    title = text.sentence(it.title)
    title = f"{title.removesuffix('.')} ({where})." if where else title
    return f"{label(it).replace(' ', NO_BREAK)}  {title} {text.sentence(it.remedy)}".rstrip()


def next_commands(study: Study, plan_path: str) -> Iterator[tuple[str, str]]:
    """The levers that address the findings, and their explanations."""
    if study.status == "script-failed":
        return
    levers = sorted({lever for it in study.findings for lever in it.levers})
    if study.status != "finished":
        given = map(text.shell_word, study.repeated_options)
        yield " ".join(("hotlap profile", *given, text.command(study.workload))), "starts again"
    elif levers:
        options = (*carried_options(study), "--only", ",".join(levers))
        yield f"hotlap tune {text.command(study.workload, *options)}", "tries the levers for these findings"
    else:
        target = text.command(study.workload, *carried_options(study))
        yield f"hotlap tune {target}", "tries every lever that could gain here"
    if study.findings:
        yield f"hotlap findings {text.shell_word(study.findings[0].rule)}", "explains the first finding"
    if study.trace_path:
        purpose = "the time of the profiled steps; ui.perfetto.dev draws the same file"
        yield f"hotlap trace {text.shell_word(study.trace_path)}", purpose


def result(entry: Entry) -> str:
    """How many causes were found, and what the costliest costs."""
    found = text.count(entry.findings, "cause")
    costliest = entry.dearest_share
    return f"{found}, up to {text.share(costliest.value)} {text.whole_of(costliest)}" if costliest else found
