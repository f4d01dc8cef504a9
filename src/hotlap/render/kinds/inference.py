"""A search for what makes the calls of a model faster: ``hotlap infer``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hotlap import gain
from hotlap.objective import gain as gain_of
from hotlap.objective import option_words, p99_of
from hotlap.records import (
    MEDIAN_CALL_SECONDS,
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    USUAL_LEVEL,
    Comparison,
    Estimate,
    Kept,
    Latency,
    NoGain,
    NotVerified,
    QualityLost,
    ScriptFacts,
    Study,
)
from hotlap.render import text
from hotlap.render.brief import Row
from hotlap.render.comparison import how_measured, ratio_words
from hotlap.render.disturbance import next_to_headline
from hotlap.render.kinds import search
from hotlap.render.kinds.api import Headline
from hotlap.render.load import load_words
from hotlap.render.objective import gain_words
from hotlap.render.quality import quality_details, quality_phrase, quality_tone
from hotlap.wording import metric_words

shows_gain = True
counts_calls = True
result = search.result


def headline(study: Study) -> Headline:
    """One recommendation with its reason, or that there is none; and what would have won if quality did not count."""
    measured = gain.comparison_of_plan(study)
    if study.status == "quick-look" or measured is None or not measured.speed.baseline_agrees:
        found = search.headline(study)
        return replace(found, details=(*found.details, *_without_quality(study, measured)))
    details = [how_measured(measured.speed), *_costs(measured), *_without_quality(study, measured)]
    if study.verification is None:
        details.append("This is the best of several comparisons; it was not verified again on fresh launches.")
    details[:0] = quality_details(measured.quality)
    busy = next_to_headline(study)
    details += [busy] if busy else []
    if gain.claimed(study) is None:
        why = study.status_text or f"{_GAINS[study.objective.metric]} was not shown."
        return Headline("neutral", f"No recommendation: {why[:1].lower()}{why[1:]}", tuple(details))
    plan = text.listed([text.setting(it) for it in study.plan.settings])
    sentence = f"Use {plan}: {_gain(study, measured)}, {quality_phrase(measured.quality)}."
    return Headline(quality_tone(measured.quality), sentence, tuple(details))


_WIDEST = 3.0
"""The ratio of an interval's ends above which it says little about a rate or a time."""

_GAINS = {
    SECONDS_PER_SAMPLE: "a gain of speed",
    MEDIAN_CALL_SECONDS: "a shorter median time of a call",
    PEAK_BYTES: "a smaller peak of memory",
}


def _gain(study: Study, measured: Comparison) -> str:
    """The gain of the goal, the effect on time, and the p99 with its limit."""
    objective = study.objective
    words = (
        ratio_words(measured.speed)
        if objective.metric == SECONDS_PER_SAMPLE
        else gain_words(objective, measured, of="unmodified model")
    )
    words = words[:1].lower() + words[1:]
    p99 = p99_of(measured.candidate_latency)
    if objective.p99_seconds is None or p99 is None:
        return words
    return f"{words}, p99 {text.duration(p99.value)} of {text.duration(objective.p99_seconds)} allowed"


def _costs(comparison: Comparison) -> Iterator[str]:
    extra = comparison.extra_startup_seconds
    if extra is not None and extra.low > 0:
        yield f"Its start and warm-up take {text.duration(extra.value)} longer."
    yield from _shared_calls(comparison)
    yield from _latencies(comparison)
    yield from load_words(comparison)
    yield from _tokens(comparison)


def _shared_calls(comparison: Comparison) -> Iterator[str]:
    """What several inputs in one call cost in latency."""
    inputs = next(
        (value for it in comparison.candidate.settings if it.lever == "batched-calls" for _, value in it.values), 0
    )
    if not inputs:
        return
    said = f"A call answers up to {inputs} inputs, and each waits for the others of its call"
    own, shared = _median(comparison.baseline_latency), _median(comparison.candidate_latency)
    longer = (
        f": it takes {text.ratio(shared.value / own.value)} as long as one of the unmodified model"
        if own and shared
        else ""
    )
    yield f"{said}{longer}."


def summary_rows(study: Study) -> Iterator[Row]:
    """The tokens and the percentiles of calls, unmodified and recommended."""
    measured = gain.comparison_of_plan(study)
    if measured is not None:
        yield Row("Tokens", tuple(_tokens(measured)), is_list=True, most=4, least=2)
        latency = (*_shared_calls(measured), *_latencies(measured))
        yield Row("Latency", latency, is_list=True, most=4, least=2)
        yield Row("Load", load_words(measured), most=3, least=2)


def _latencies(comparison: Comparison) -> Iterator[str]:
    for name, found in (("Unmodified", comparison.baseline_latency), ("Recommended", comparison.candidate_latency)):
        if found is not None and found.percentiles:
            levels = (
                f"p{100 * it.share:.0f} {text.duration(it.seconds.value)} ({text.duration(it.seconds.low)} to "
                f"{text.duration(it.seconds.high)})"
                for it in found.percentiles
            )
            worst = text.duration(found.worst_seconds)
            yield f"{name}, {text.count(found.calls, 'call')}: {', '.join(levels)}, worst {worst}."


def _tokens(comparison: Comparison) -> Iterator[str]:
    """``Unmodified: 812 tokens per second (790 to 834), the first after 12.1 ms (11.9 to 12.4), then 1.2 ms ...``"""
    arms = ("Unmodified", comparison.baseline_generation), ("Recommended", comparison.candidate_generation)
    for name, found in arms:
        if found is None:
            continue
        parts = []
        rate, first, further = found.tokens_per_second, _median(found.first_token), _median(found.per_token)
        if rate is not None:
            parts.append(f"{rate.value:.4g} tokens per second ({rate.low:.4g} to {rate.high:.4g}{_width(rate)})")
        else:
            parts.append("tokens per second unknown, since launches differ too much")
        if first is not None:
            parts.append(f"the first token after {_with_interval(first)}")
        if further is not None:
            parts.append(f"then {_with_interval(further)} per token of a sequence")
        yield f"{name}: {', '.join(parts)} (medians of calls)."


def _median(latency: Latency | None) -> Estimate | None:
    found = latency.percentiles if latency is not None else ()
    return next((it.seconds for it in found if it.share == 0.5), None)


def _with_interval(it: Estimate) -> str:
    return f"{text.duration(it.value)} ({text.duration(it.low)} to {text.duration(it.high)}{_width(it)})"


def _width(it: Estimate) -> str:
    """A remark on an interval that is too wide to learn anything from."""
    return "; too wide to compare, a longer --budget narrows it" if it.high > _WIDEST * it.low else ""


def _without_quality(study: Study, recommended: Comparison | None) -> Iterator[str]:
    """The best candidate that was not recommended because of its outputs, if it is better than the recommended one."""
    refused = [
        (_ratio(study, it.verdict.comparison), it.lever, it.verdict.reason)
        for it in study.outcomes
        if isinstance(it.verdict, (QualityLost, NotVerified)) and it.verdict.comparison is not None
    ]
    refused += [
        (it.gain, f"{text.setting(it.plan.settings[-1])} (one replicate, no interval)", it.quality.text)
        for it in study.refused
        if it.gain is not None
    ]
    refused += [
        (_ratio(study, it.comparison), text.setting(it.plan.settings[-1]), it.comparison.quality.text)
        for it in study.candidates
        if it.comparison.quality is not None and not it.comparison.quality.verified
    ]
    gained, lever, why = max(refused, default=(0.0, "", ""))
    if gained > (_ratio(study, recommended) if recommended is not None else 1.0):
        words = "" if study.objective.metric == SECONDS_PER_SAMPLE else f" less {metric_words(study.objective.metric)}"
        ratio = f"{text.ratio(gained)}{words}"
        yield f"If quality did not count, {text.one_line(lever)} would win with {ratio}. {text.sentence(why)}"


def _ratio(study: Study, comparison: Comparison) -> float:
    """How many times better the goal's metric is; 0 if unknown."""
    found = gain_of(study.objective, comparison)
    return found.value if found is not None else 0.0


def what_was_done(study: Study) -> str:
    """How the figures were obtained."""
    target = text.one_line(study.workload.target, limit=120)
    if study.workload.kind != "inference":
        return (
            f"hotlap ran {target} on one machine, unmodified and with each lever, in fresh launches that took turns, "
            "and compared the outputs of its first calls with those of the model in float32."
        )
    return (
        f"hotlap called the model of {target} on one machine, unmodified and with each lever, in fresh launches that "
        "took turns, and compared outputs with those of the model in float32."
    )


def _level(study: Study) -> tuple[str, ...]:
    level = study.quality_level
    return () if level in (None, USUAL_LEVEL) else ("--quality", f"{level:g}")


def next_commands(study: Study, plan_path: str) -> Iterator[tuple[str, str]]:
    """What to do next."""
    if study.status == "script-failed":
        return
    tried = any(isinstance(it.verdict, (Kept, NoGain, QualityLost, NotVerified)) for it in study.outcomes)
    if study.status != "finished" or not tried:
        given = study.repeated_options or (*option_words(study.objective), *_level(study))
        words = ("hotlap infer", *map(text.shell_word, given), text.command(study.workload))
        yield " ".join(words), "tries again without a limit of time"
    if study.plan.settings and (study.status == "finished" or study.verification is not None):
        if study.workload.kind == "inference" and _is_for_own_code(study):
            for it in study.plan.settings:
                yield f"hotlap levers {it.lever}", "how to write it into your code"
        elif study.workload.kind == "inference":
            yield text.of_study("hotlap export artefact", study.directory), "files to deploy"
        else:
            yield text.of_study("hotlap patch", study.directory), "the change of the script"
    yield text.of_study("hotlap report --json", study.directory), "every figure"


def _is_for_own_code(study: Study) -> bool:
    """Whether the plan is about how the user's code calls the model, so that no file can hold it."""
    facts = study.baseline.facts if study.baseline is not None else ScriptFacts()
    whole_passes = facts.lengths is not None and facts.lengths.whole_passes
    return facts.generation is not None or whole_passes
