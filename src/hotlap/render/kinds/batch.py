"""A search for the batch size: the knee, what fits, and a warning that another size changes what is learned."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.history import Entry
from hotlap.records import Study
from hotlap.render import text
from hotlap.render.batch_search import advice_sentences, knee_sentence, search_rows
from hotlap.render.blocks import Fact
from hotlap.render.brief import Row
from hotlap.render.carried import carried_options
from hotlap.render.kinds.api import Headline
from hotlap.render.step_words import step_words


def headline(study: Study) -> Headline:
    """The knee with its reason, or why there is none."""
    search = study.batch_search
    if study.status != "finished" or search is None:
        why = [text.sentence(study.status_text)] if study.status_text else []
        return Headline("neutral", "Not finished: the search for the batch size gave no answer.", tuple(why))
    if search.obstacle:
        return Headline(
            "neutral", "The batch size of this script cannot be changed.", (text.one_line(search.obstacle),)
        )
    sentences = [*step_words(study)]
    failed = min((it.batch_size for it in search.rates if it.out_of_memory), default=0)
    if failed:
        sentences.append(f"A batch size of {failed} runs out of memory or leaves too little free.")
    if search.knee != search.own:
        sentences.append("Another batch size changes what is learned; hotlap did not compare losses.")
    gained = search.knee > search.own
    return Headline("good" if gained else "neutral", knee_sentence(search), tuple(sentences))


def what_was_done(study: Study) -> str:
    """How the figures were obtained."""
    script = text.one_line(study.workload.target, limit=120)
    return (
        f"hotlap ran {script} with other batch sizes in fresh launches that took turns with the unmodified script, and "
        "measured samples per second and peak memory. Nothing was changed in it."
    )


def facts(study: Study) -> Iterator[Fact]:
    """The knee, and the largest size that fits."""
    search = study.batch_search
    if search is not None and search.knee:
        yield Fact("Knee", str(search.knee))
        yield Fact("Largest that fits", str(search.largest_fitting))


def summary_rows(study: Study) -> Iterator[Row]:
    """A line for each size, and what to do with the learning rate."""
    rows = search_rows(study)
    if rows:
        yield Row("Sizes", tuple(map(_size, rows)), is_list=True, most=9, least=4)
    search, advice = study.batch_search, study.batch_advice
    if search is not None and advice is not None and search.knee not in (0, search.own):
        yield Row("Learning", (next(advice_sentences(advice, search.knee)),), most=3)


def _size(row: tuple[str, ...]) -> str:
    size, rate, ratio, interval, peak, words = row
    if not rate:
        return f"{size}: {words}"
    parts = [f"{rate} samples per second", f"{ratio} ({interval})" if ratio else "", f"peak {peak}" if peak else ""]
    return f"{size}: {', '.join(filter(None, (*parts, words)))}"


def next_commands(study: Study, plan_path: str) -> Iterator[tuple[str, str]]:
    """A search for levers at the script's own batch size."""
    if study.status == "finished":
        target = text.command(study.workload, *carried_options(study))
        yield f"hotlap tune {target}", "tries levers at its own batch size"


def result(entry: Entry) -> str:
    """Only how it ended; the knee is in the report."""
    return entry.status.replace("-", " ")
