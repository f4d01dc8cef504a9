"""A script in several numbers of processes: its efficiency, with intervals."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.history import Entry
from hotlap.records import Study
from hotlap.render import text
from hotlap.render.brief import Row
from hotlap.render.carried import carried_options
from hotlap.render.kinds.api import Headline
from hotlap.render.resuming import resuming
from hotlap.render.scaling import process_remarks, process_rows, process_sentence


def headline(study: Study) -> Headline:
    """The efficiency of the largest number."""
    found = study.process_scaling
    if study.status != "finished" or found is None or len(found.rates) < 2:
        why = [text.sentence(study.status_text)] if study.status_text else []
        return Headline("neutral", "Not finished: how the script scales was not measured.", tuple(why))
    return Headline("neutral", process_sentence(found), tuple(process_remarks(found)))


def what_was_done(study: Study) -> str:
    """How the figures were obtained."""
    script = text.one_line(study.workload.target, limit=120)
    return (
        f"hotlap ran {script} in several numbers of processes, in fresh launches that took turns, and measured samples "
        "per second. Nothing was changed in it."
    )


def summary_rows(study: Study) -> Iterator[Row]:
    """A line for each number of processes."""
    found = study.process_scaling
    if found is None:
        return
    lines = []
    for count, step, rate, share, interval, _ in process_rows(found.rates):
        within = f" ({interval})" if interval else ""
        lines.append(f"{count}: {step} per step, {rate} samples/s, efficiency {share}{within}")
    yield Row("Processes", tuple(lines), is_list=True, most=6, least=4)


def next_commands(study: Study, plan_path: str) -> Iterator[tuple[str, str]]:
    """A prediction beyond this machine; for a comparison that did not finish, its continuation."""
    if study.status in ("interrupted", "running"):
        yield resuming("tune", study), "continues where this ended"
    if study.status == "finished":
        yield f"hotlap scale {text.command(study.workload, *carried_options(study))}", "predicts more devices"


def result(entry: Entry) -> str:
    """Only how it ended; the rates are in the report."""
    return entry.status.replace("-", " ")
