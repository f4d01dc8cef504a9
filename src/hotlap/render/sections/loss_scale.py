"""What the gradient scaler did: its scale, the steps that it skipped, and how often gradients overflowed."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.loss_scale import ScaleHistory, scale_history
from hotlap.records import WatchedRun
from hotlap.render import text
from hotlap.render.blocks import Block, Note, Table
from hotlap.render.html.parts import Figure, PageBlock
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 56
title = "Loss scale"

_PROFILED = "These are steps of the unmodified script. `hotlap run --watch` follows the scale over a whole run."
_WATCHED = "The scale is read about once per second; changes in between are not seen. Skipped steps are all counted."


def everywhere(material: Material) -> Section[Block] | None:
    """The figures of the scaler; none where no scaler was seen."""
    history = _history(material)
    if history is not None:
        return Section(title, (Table(("", ">profiled steps"), tuple(_rows(history))), Note(_PROFILED)))
    scales = watched_scales(material.study.watch)
    if not scales:
        return None
    rows = (*_watched_rows(scales), *_watched_skips(material.study.watch))
    return Section(title, (Table(("", ">whole run"), rows), Note(_WATCHED)))


def page(material: Material) -> Section[PageBlock] | None:
    """The figures, and the scale step by step."""
    made = everywhere(material)
    return None if made is None else Section(title, (*made.body, Figure("loss-scale", heading=True)))


def _history(material: Material) -> ScaleHistory | None:
    return scale_history(material.profile.evidence.numbers) if material.profile is not None else None


def _rows(of: ScaleHistory) -> Iterator[tuple[str, str]]:
    yield "scale at first", f"{of.scales[0]:g}"
    yield "scale at the end", f"{of.scales[-1]:g}"
    yield "smallest and largest scale", f"{min(of.scales):g} to {max(of.scales):g}"
    yield "steps taken", f"{len(of.scales):,}"
    yield "steps skipped", f"{sum(of.skipped):,}"
    yield "of these, after the scale was found", f"{of.skipped_since:,} of {of.tried:,}"
    yield "overflow rate after the scale was found", text.share(of.overflow_rate)
    yield "rises of the scale after it was found", f"{of.rises:,}"


def watched_scales(run: WatchedRun | None) -> tuple[float, ...]:
    """The scales that were read while a run was watched."""
    return tuple(it for it in run.series.loss_scale if it is not None) if run is not None else ()


def _watched_skips(run: WatchedRun | None) -> Iterator[tuple[str, str]]:
    """Nothing for a run that was watched before they were counted."""
    tried = sum(run.series.scaled_steps) if run is not None else 0
    if run is not None and tried:
        skipped = sum(run.series.skipped_steps)
        yield "steps skipped", f"{skipped:,} of {tried:,}"
        yield "overflow rate", text.share(skipped / tried)


def _watched_rows(scales: tuple[float, ...]) -> Iterator[tuple[str, str]]:
    yield "scale at first", f"{scales[0]:g}"
    yield "scale at the end", f"{scales[-1]:g}"
    yield "smallest and largest scale", f"{min(scales):g} to {max(scales):g}"
