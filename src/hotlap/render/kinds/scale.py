"""A prediction: the step on more devices, what limits it, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.history import Entry
from hotlap.records import Study
from hotlap.render import text
from hotlap.render.blocks import Fact
from hotlap.render.brief import Row
from hotlap.render.carried import carried_options
from hotlap.render.kinds.api import Headline
from hotlap.render.resuming import resuming
from hotlap.render.scaling import (
    change_sentence,
    curve_lines,
    prediction_sentence,
    price_and_failure_sentences,
    trust_sentences,
)


def headline(study: Study) -> Headline:
    """The step at the largest size."""
    found = study.scale
    if study.status != "finished" or found is None or not found.points:
        why = [text.sentence(study.status_text)] if study.status_text else []
        return Headline("neutral", "Not finished: nothing was predicted.", tuple(why))
    details = filter(None, (change_sentence(found),))
    return Headline("neutral", prediction_sentence(found), tuple(details))


def what_was_done(study: Study) -> str:
    """How the figures were obtained."""
    script = text.one_line(study.workload.target, limit=120)
    return (
        f"hotlap measured {script} in one process: its step, when backward finished which gradient, and its memory. It "
        "then simulated steps of more processes, each with the same batch. Nothing was changed in the script."
    )


def facts(study: Study) -> Iterator[Fact]:
    """The step that all predictions start from."""
    if study.scale is not None:
        yield Fact("Step of one device", text.duration(study.scale.step.seconds))


def summary_rows(study: Study) -> Iterator[Row]:
    """The curve, its trust, and what it assumes."""
    found = study.scale
    if found is None or not found.points:
        return
    yield Row("Ranks", tuple(curve_lines(found)), is_list=True, most=4, least=4)
    planned = tuple(price_and_failure_sentences(found))
    if planned:
        yield Row("Planning", planned, most=2, least=1)
    yield Row("Trust", tuple(trust_sentences(found)), most=3, least=3)
    if found.assumptions:
        yield Row("Assumed", found.assumptions, most=3, least=2)


def next_commands(study: Study, plan_path: str) -> Iterator[tuple[str, str]]:
    """The same step for another cluster, and what is measured here."""
    if study.status in ("interrupted", "running"):
        yield resuming("scale", study), "continues where this ended"
    if study.status != "finished":
        return
    if study.directory:
        yield text.of_study("hotlap scale --nodes 8 --link 400Gb --from", study.directory), "predicts another cluster"
        target = text.command(study.workload, *carried_options(study))
        yield f"hotlap tune --nproc 1,2 {target}", "measures how it scales here"


def result(entry: Entry) -> str:
    """Only how it ended; the curve is in the report."""
    return entry.status.replace("-", " ")
