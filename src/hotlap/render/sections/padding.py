"""How much of a model's work on sequences is padding, and what other batches of the same sequences gain."""

from __future__ import annotations

from hotlap import plan as plans_of
from hotlap.records import Batching, LengthFacts, Padding, Study
from hotlap.render import text
from hotlap.render.blocks import Block, Note, Paragraph, Table
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 26
title = "Padding"
_HEADINGS = ("batches", ">padding", ">positions", ">calls", ">shapes", ">speed", ">interval")
_WORTH_MENTIONING = 0.02


def everywhere(material: Material) -> Section[Block] | None:
    """A row for each way of forming batches, and what was measured with it."""
    study = material.study
    lengths = study.baseline.facts.lengths if study.baseline is not None else None
    if lengths is None or not lengths.paddings:
        return None
    own = lengths.paddings[0]
    if not lengths.whole_passes:
        if _share(lengths, own) < _WORTH_MENTIONING:
            return None
        return Section(title, (Paragraph(_summary(lengths)), Note(_MORE)))
    rows = tuple(_row(study, lengths, it) for it in lengths.paddings if it is own or it.positions < own.positions)
    return Section(title, (Paragraph(_summary(lengths)), Table(_HEADINGS, rows), Note(_LEGEND)))


_MORE = "`hotlap infer --lengths` times batches of similar length."
_LEGEND = (
    "A pass over all inputs is timed, in which outputs return to their original order; forming the batches is not. "
    "Positions are those that the model computes, padding included."
)


def _summary(lengths: LengthFacts) -> str:
    least = min(lengths.paddings, key=lambda it: it.positions)
    said = (
        f"{text.share(_share(lengths, lengths.paddings[0]))} of what the model computes is padding: "
        f"{text.count(lengths.sequences, 'sequence')} of {lengths.shortest} to {lengths.longest} tokens (median "
        f"{lengths.median:g})."
    )
    if least.positions < lengths.paddings[0].positions:
        fewer = lengths.paddings[0].positions / least.positions
        said += f" Batches that are {_words(least.batching)} compute {text.ratio(fewer)} fewer positions."
    return said


def _row(study: Study, lengths: LengthFacts, it: Padding) -> tuple[str, ...]:
    setting = plans_of.setting("length-bucketing", multiple=it.batching.multiple, order=it.batching.order)
    found = next((one for one in study.candidates if one.plan.settings == (setting,)), None)
    speed = found.comparison.speed.speedup if found is not None else None
    is_own = it is lengths.paddings[0]
    return (
        _words(it.batching),
        text.share(_share(lengths, it)),
        _figure(it.positions),
        _figure(it.batches),
        _figure(it.shapes),
        text.ratio(speed.value) if speed is not None else "1x" if is_own else "",
        text.interval(speed) if speed is not None else "",
    )


def _share(lengths: LengthFacts, it: Padding) -> float:
    return 1 - lengths.tokens / it.positions if it.positions else 0.0


def _words(batching: Batching) -> str:
    if not batching.multiple:
        return "as given"
    kinds = {"given": "as given, cut to the longest", "sorted": "sorted", "bucketed": "bucketed"}
    kind = kinds.get(batching.order, "sorted, filled up")
    return kind if batching.multiple == 1 else f"{kind}, multiples of {batching.multiple}"


def _figure(count: int) -> str:
    return f"{count:,}"
