"""The ceilings: upper bounds of the gain from a faster loader or a faster model."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.records import Study
from hotlap.render import text
from hotlap.render.blocks import Block, Note, Table
from hotlap.render.disturbance import ceiling_doubt
from hotlap.render.html.parts import Figure, Lead, PageBlock
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 30
title = "Ceilings"

_MEANINGS = {
    "loader-alone": "No model can train faster than this loader delivers.",
    "model-alone": "The rate without any wait for data.",
    "matmul": "Every operation at the measured matmul rate.",
}
_LEAD = (
    "No model can train faster than its loader delivers, and no loader can feed a model faster than it trains. These "
    "are the most that can be reached, not a promise."
)


def everywhere(material: Material) -> Section[Block]:
    """Each ceiling with the speedup that it allows, and its meaning."""
    return Section(title, tuple(_blocks(material.study)))


def page(material: Material) -> Section[PageBlock]:
    """The same, below a chart of the rates."""
    return Section(title, (Lead(_LEAD), Figure("ceilings"), *_blocks(material.study)))


def _blocks(study: Study) -> Iterator[Block]:
    if study.ceilings:
        yield Table(("ceiling", ">per sample", ">at most", "what it means"), tuple(_rows(study)), title)
    if study.model_flop_utilisation is not None and study.model_flop_utilisation <= 1:  # more would be an error
        share = text.share(study.model_flop_utilisation)
        yield Note(f"Model FLOP utilisation: {share} of the matmul rate measured on this machine.")


def _rows(study: Study) -> Iterator[tuple[str, ...]]:
    for it in study.ceilings:
        per_sample = text.duration(it.seconds_per_sample) if it.seconds_per_sample is not None else ""
        bound = text.ratio(it.bound_speedup) if it.bound_speedup is not None else ""
        meaning = " ".join(filter(None, (_MEANINGS[it.name], text.sentence(it.text), ceiling_doubt(study, it.name))))
        yield it.name.replace("-", " "), per_sample, bound, meaning
