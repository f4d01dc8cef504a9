"""A run that was watched while it went on."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.history import Entry
from hotlap.records import Study
from hotlap.render import text
from hotlap.render.blocks import Fact
from hotlap.render.kinds.api import Headline
from hotlap.render.watch import alarm_sentences, how_it_went, plan_sentences


def headline(study: Study) -> Headline:
    """How the run ended, and what got worse in it."""
    run = study.watch
    ended = text.sentence(study.status_text or "The run was watched")
    if run is None or not run.steps:
        return Headline("neutral", f"{ended} No training step was seen.")
    alarms = list(alarm_sentences(run))
    details = (*how_it_went(run), *alarms, *plan_sentences(run))
    said = f"{text.count(len(alarms), 'alarm')}: {run.alarms[0].text}" if alarms else "no alarm"
    sentence = f"{ended[:-1]}; {text.one_line(said)}."
    return Headline("bad" if alarms or run.exit_code else "good", sentence, details)


def what_was_done(study: Study) -> str:
    """How the figures were obtained."""
    script = text.one_line(study.workload.target, limit=120)
    return (
        f"{script} ran once, to its own end, while hotlap timed some or all of its steps. Nothing was changed in it "
        "but by the levers of the plan, if it had one."
    )


def facts(study: Study) -> Iterator[Fact]:
    """Steps and alarms."""
    if study.watch is not None:
        yield Fact("Steps", f"{study.watch.steps:,}")
        yield Fact("Alarms", str(len(study.watch.alarms)))


def next_commands(study: Study, plan_path: str) -> Iterator[tuple[str, str]]:
    """A profile, which explains what the account only shows."""
    yield f"hotlap profile {text.command(study.workload)}", "explains where the time of a step goes"


def result(entry: Entry) -> str:
    """Only how it ended; the account is in the report."""
    return entry.status.replace("-", " ")
