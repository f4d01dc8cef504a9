"""Every metric of the study's comparison, with its interval and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from hotlap.gain import comparison_of_plan
from hotlap.objective import judge, metric_of
from hotlap.records import SECONDS_PER_SAMPLE, Comparison, Estimate, LimitState, MetricComparison, MetricVerdict, Study
from hotlap.render import text
from hotlap.render.blocks import Block, Note, Table
from hotlap.render.cost import joules
from hotlap.render.kinds.api import presenter_of
from hotlap.render.material import Material
from hotlap.render.sections.api import Section
from hotlap.wording import metric_words

order = 15
title = "Metrics"

_VERDICTS: dict[MetricVerdict, str] = {
    "better": "better",
    "worse": "worse",
    "no-effect": "no effect",
    "inconclusive": "inconclusive",
}
_UNITS: Mapping[str, Callable[[float], str]] = {"B": text.size, "s": text.duration, "J": joules}
_LIMITS: dict[LimitState, str] = {"kept": "within", "broken": "beyond", "open": "perhaps beyond"}


def everywhere(material: Material) -> Section[Block] | None:
    """The rows; none if only the speed is known, which is in the headline."""
    comparison = comparison_of_plan(material.study)
    if comparison is None or not comparison.metrics:
        return None
    return Section(title, (metric_table(material.study, comparison), Note(_footnote(comparison))))


def metric_table(study: Study, comparison: Comparison) -> Table:
    """A row for the time per sample, and one for each metric of a launch."""
    before, after = presenter_of(study.kind).sides(study)
    limits = dict(_limits(study, comparison))
    known = filter(None, (metric_of(comparison, SECONDS_PER_SAMPLE), *comparison.metrics))
    claims = comparison.speed.baseline_agrees
    rows = (_row(study, it, claims, limits.get(it.metric, "")) for it in known)
    return Table(("metric", f">{before}", f">{after}", ">ratio", "interval", "verdict"), tuple(rows), title)


def _row(study: Study, it: MetricComparison, claims: bool, limit: str) -> tuple[str, ...]:
    name, scale = _name_and_scale(study, it.metric)
    verdict = _VERDICTS[it.verdict] if claims else "no claim"
    before, after = it.baseline, it.candidate or _times(it.baseline, it.ratio.value)
    levels = _level(_times(before, scale)), _level(_times(after, scale))
    return text.one_line(name), *levels, text.ratio(it.ratio.value), text.interval(it.ratio), f"{verdict}{limit}"


def _name_and_scale(study: Study, metric: str) -> tuple[str, float]:
    """What a metric is called, and what its figures are multiplied by: where it is not known how many samples a step
    or a call holds, its whole time stands for that of a sample."""
    account = study.account_before
    if metric != SECONDS_PER_SAMPLE or account is None or not account.samples_are_guessed:
        return metric_words(metric), 1.0
    return f"time per {'call' if account.is_of_calls else 'step'}", account.samples_per_step


def _limits(study: Study, comparison: Comparison) -> Iterator[tuple[str, str]]:
    """The verdict on each limit of the study's objective, by the name of its metric."""
    for it in judge(study.objective, comparison).limits:
        found = metric_of(comparison, it.limit.metric)
        if found is not None:
            yield found.metric, f", {_LIMITS[it.state]} {it.limit.most:g}x"


def _times(level: Estimate | None, factor: float) -> Estimate | None:
    """A level, so many times as large."""
    if level is None:
        return None
    return Estimate(value=level.value * factor, low=0.0, high=0.0, unit=level.unit)


def _level(of: Estimate | None) -> str:
    """A figure in its unit, or nothing."""
    if of is None:
        return ""
    shown = _UNITS.get(of.unit)
    if shown is not None:
        return shown(of.value)
    return f"{text.number(of.value)} {text.one_line(of.unit, limit=12)}".rstrip()


def _footnote(comparison: Comparison) -> str:
    replicates = text.count(comparison.speed.replicates, "replicate")
    level = text.confidence(comparison.speed.confidence)
    return f"Ratios with their {level} over {replicates} of fresh launches. Less is better."
