"""All forms of a model that were compared with the unmodified one, with their Pareto front."""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.objective import RESTING_BYTES, is_speed, metric_of, pareto_front
from hotlap.records import Candidate, Comparison, EngineReport, Latency, Quality, Refused, Study
from hotlap.render import text
from hotlap.render.blocks import Block, Bullets, Note, Table
from hotlap.render.html.charts.candidates import CANDIDATES
from hotlap.render.html.parts import Figure, PageBlock
from hotlap.render.load import legend_of, rate_cells
from hotlap.render.material import Material
from hotlap.render.quality import is_of_tokens, quality_word, score_of
from hotlap.render.sections.api import Section

order = 24
title = "Candidates"
_HEADINGS = ("candidate", ">speed", ">interval", ">p50", ">p99", ">calls/s", ">memory", ">at rest", ">quality")


def everywhere(material: Material) -> Section[Block] | None:
    """A row for each, fastest first, the engines that ran, and the meaning of the words."""
    study = material.study
    if not study.candidates and not study.refused:
        return None
    front = pareto_front(study.candidates)
    ordered = sorted(study.candidates, key=lambda it: -it.comparison.speed.speedup.value)
    refused = sorted(study.refused, key=lambda it: -(it.gain or 0.0))
    rows = (
        _unmodified(ordered[0].comparison if ordered else None),
        *(_row(it, study, it in front) for it in ordered),
        *(_refused_row(it, study) for it in refused),
    )
    listed: tuple[Candidate | Refused, ...] = (*ordered, *refused)
    engines = tuple(f"{_name(it)}: {_engine(it.engine)}." for it in listed if it.engine is not None)
    legend = Note(_legend(ordered, refused))
    blocks = (_without_empty_columns(rows), *((Bullets(engines),) if engines else ()), legend)
    return Section(title, blocks)


def page(material: Material) -> Section[PageBlock] | None:
    """The same with speed and quality drawn."""
    plain = everywhere(material)
    if plain is None:
        return None
    return Section(title, (Figure(CANDIDATES, heading=True), *plain.body))


_COMPARED = "Each was measured against the unmodified model in fresh launches."
_FRONT = (
    "Pareto: no other candidate is at least as good in speed, latency (p50), memory, memory at rest and quality, and "
    "better in one."
)
_REFUSED = (
    "The outputs of those without an interval were compared before their speed, and are not as required: a speed of "
    "theirs is that of a first measurement (one replicate)."
)


def _legend(candidates: Sequence[Candidate], refused: Sequence[Refused]) -> str:
    qualities = [*(it.comparison.quality for it in candidates), *(it.quality for it in refused)]
    names = {score.name for it in qualities if (score := score_of(it)) is not None}
    quality = (
        f"the share of {text.listed(sorted(text.one_line(it, limit=80) for it in names))} that is kept"
        if names
        else "the share of sequences with the same tokens under greedy decoding"
        if any(map(is_of_tokens, qualities))
        else "the smallest cosine or agreement of the outputs with those of the model in float32"
    )
    load = next(filter(None, (legend_of(it.comparison) for it in candidates)), "")
    sentences = (
        _COMPARED if candidates else "",
        f"Quality is {quality}.",
        _FRONT if candidates else "",
        _REFUSED if refused else "",
        load,
    )
    return " ".join(filter(None, sentences))


def _unmodified(found: Comparison | None) -> tuple[str, ...]:
    if found is None:
        return ("unmodified", "1x", *("",) * (len(_HEADINGS) - 3), "1")
    peak = text.size(found.baseline_peak_bytes) if found.baseline_peak_bytes else ""
    return (
        "unmodified",
        "1x",
        "",
        *_percentiles(found.baseline_latency),
        rate_cells(found)[0],
        peak,
        _at_rest(found)[0],
        "1",
    )


def _row(it: Candidate, study: Study, is_on_front: bool) -> tuple[str, ...]:
    found = it.comparison
    mark = ", recommended" if it.plan == study.plan else ", Pareto" if is_on_front else ""
    return (
        f"{_name(it)}{mark}",
        text.ratio(found.speed.speedup.value),
        text.interval(found.speed.speedup),
        *_percentiles(found.candidate_latency),
        rate_cells(found)[1],
        text.size(found.candidate_peak_bytes) if found.candidate_peak_bytes else "",
        _at_rest(found)[1],
        _quality(found.quality),
    )


def _refused_row(it: Refused, study: Study) -> tuple[str, ...]:
    """Its speed only where that is what the first measurement looked for."""
    speed = text.ratio(it.gain) if it.gain is not None and is_speed(study.objective) else ""
    return (_name(it), speed, *("",) * (len(_HEADINGS) - 3), _quality(it.quality))


def _at_rest(found: Comparison) -> tuple[str, str]:
    """The memory before the first call, unmodified and of the candidate; empty where it was not recorded."""
    levels = metric_of(found, RESTING_BYTES)
    sides = (levels.baseline, levels.candidate) if levels is not None else (None, None)
    return tuple(text.size(int(it.value)) if it is not None else "" for it in sides)  # type: ignore[return-value]


def _name(it: Candidate | Refused) -> str:
    return ", ".join(text.setting(one) for one in it.plan.settings)


def _quality(found: Quality | None) -> str:
    """The figure, with a word unless outputs are as good as required."""
    if found is None or found.likeness is None:
        return quality_word(found)
    figure = f"{found.likeness:.4g}"
    return figure if found.verified else f"{figure} {quality_word(found)}"


def _without_empty_columns(rows: Sequence[tuple[str, ...]]) -> Table:
    shown = [number for number, cells in enumerate(zip(*rows, strict=True)) if any(cells)]
    return Table(tuple(_HEADINGS[it] for it in shown), tuple(tuple(row[number] for number in shown) for row in rows))


def _percentiles(found: Latency | None) -> tuple[str, str]:
    known = {it.share: text.duration(it.seconds.value) for it in found.percentiles} if found is not None else {}
    return known.get(0.5, ""), known.get(0.99, "")


def _engine(engine: EngineReport) -> str:
    """The engine with its number format, and how many of its operators compute with integers."""
    said = " ".join(text.one_line(part) for part in (engine.engine, engine.version, engine.precision) if part)
    if engine.quantized:
        said = f"{said}, {engine.quantized} quantized of {text.count(engine.operators, 'operator')}"
    elif engine.operators:
        said = f"{said}, {text.count(engine.operators, 'operator')}"
    said = f"{said}, built in {text.duration(engine.build_seconds)}" if engine.build_seconds else said
    return f"{said}, {text.size(engine.size_bytes)} on disk" if engine.size_bytes else said
