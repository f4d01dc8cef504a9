"""A memory account: the peak, and what grows."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.history import Entry
from hotlap.records import Study
from hotlap.render import text
from hotlap.render.blocks import Fact
from hotlap.render.brief import Row
from hotlap.render.carried import carried_options
from hotlap.render.kinds.api import Headline
from hotlap.render.memory import (
    estimate_rows,
    estimate_sentence,
    growth_sentences,
    kind_rows,
    module_rows,
    peak_sentence,
)


def headline(study: Study) -> Headline:
    """The estimate, else the growth, else the peak."""
    account, estimate = study.memory, study.memory_estimate
    if study.status == "finished" and estimate is not None and estimate.peaks:
        return Headline("neutral", estimate_sentence(estimate))
    if study.status != "finished" or account is None:
        why = [text.sentence(study.status_text)] if study.status_text else []
        return Headline("neutral", "Not finished: memory was not accounted for.", tuple(why))
    growing = list(growth_sentences(account))
    if growing:
        return Headline("bad", growing[0], (*growing[1:], peak_sentence(account)))
    return Headline("good", peak_sentence(account), ("Nothing grows from step to step.",))


def what_was_done(study: Study) -> str:
    """How the figures were obtained."""
    script = text.one_line(study.workload.target, limit=120)
    if study.memory_estimate is not None:
        return (
            f"hotlap ran the first steps of {script} on tensors that have a shape and a type but no data, once for "
            "each batch size and lever, and counted the storages that they would take."
        )
    return (
        f"hotlap ran the first steps of {script} and counted the storages of all tensors as they were made and freed. "
        "Nothing was changed in it, and its results are the same."
    )


def facts(study: Study) -> Iterator[Fact]:
    """The peak and the growth; an estimate has its table."""
    if study.memory is not None:
        yield Fact("Peak", text.size(study.memory.peak.total))
        growth = study.memory.growth_bytes_per_step
        yield Fact("Growth per step", text.size(growth) if growth else "none")


_MODULES_SHOWN = 3


def summary_rows(study: Study) -> Iterator[Row]:
    """The kinds of memory at the peak and the largest modules; or a line for each estimate."""
    if study.memory_estimate is not None:
        items = tuple(_estimate(*row) for row in estimate_rows(study.memory_estimate))
        yield Row("Estimates", items, is_list=True, most=9, least=4)
    elif study.memory is not None:
        *kinds, _ = kind_rows(study.memory)
        shown = [f"{name} {size} ({share})" for name, size, share, _ in kinds if size != text.size(0)]
        yield Row("At peak", (", ".join(shown) + ".",))
        modules = [f"{name}: {_of_module(row)}" for name, *row in module_rows(study.memory)[:_MODULES_SHOWN]]
        yield Row("Modules", tuple(modules), is_list=True, most=3)


def _estimate(size: str, levers: str, peak: str, fits: str) -> str:
    words = {"yes": ", fits", "no": ", does not fit"}.get(fits, f" {fits}" if fits else "")
    return f"batch size {size or 'unknown'}, {levers}: {peak}{words}"


def _of_module(row: list[str]) -> str:
    names = ("activations", "gradients", "optimizer state")
    return ", ".join(f"{name} {size}" for name, size in zip(names, row, strict=True) if size)


def next_commands(study: Study, plan_path: str) -> Iterator[tuple[str, str]]:
    """Searches for the batch size and for levers that save memory."""
    if study.status == "finished":
        target = text.command(study.workload, *carried_options(study))
        yield f"hotlap batch {target}", "finds what batch size fits and pays"
        yield f"hotlap tune --goal memory {target}", "tries levers that save it"


def result(entry: Entry) -> str:
    """Only how it ended; the account is in the report."""
    return entry.status.replace("-", " ")
