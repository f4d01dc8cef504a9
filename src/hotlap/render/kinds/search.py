"""A search for what makes training better: ``hotlap tune``, and ``hotlap lab``, which tries three plans."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hotlap.gain import comparison_of_plan, exceeds_bound
from hotlap.history import Entry
from hotlap.objective import is_speed, judge, option_words
from hotlap.records import (
    Comparison,
    Crashed,
    Failed,
    Finding,
    Kept,
    NoGain,
    NotVerified,
    QualityLost,
    Seen,
    Skipped,
    SpeedComparison,
    Study,
    Verdict,
)
from hotlap.render import text
from hotlap.render.account import bottleneck
from hotlap.render.comparison import how_measured, ratio_words
from hotlap.render.disturbance import next_to_headline
from hotlap.render.kinds.api import Headline
from hotlap.render.objective import gain_words, limit_words, not_better
from hotlap.render.quality import quality_details, quality_phrase, quality_tone
from hotlap.render.resuming import resuming
from hotlap.render.run_account import whole_run_speedup
from hotlap.render.step_words import step_words
from hotlap.wording import metric_words

shows_gain = True
goes_into_source = True

_WORTH_NAMING = 1.05
"""What a lever must show in one replicate, which has no interval, to be named though it is not proved."""
_SEEN_SHOWN = 3
_USUAL_BUDGET_SECONDS = 300.0


def headline(study: Study) -> Headline:
    """The gain, or why there is none, with what disturbed the measurements."""
    found = _answer(study)
    busy = next_to_headline(study)
    return replace(found, details=(*found.details, busy)) if busy else found


def _answer(study: Study) -> Headline:
    if study.status == "quick-look":
        return _quick_look(study)
    measured = comparison_of_plan(study)
    if measured is not None:
        return _verified(study, measured)
    return _nothing_faster(study) if study.status == "finished" else _unfinished(study)


def _verified(study: Study, comparison: Comparison) -> Headline:
    speed = comparison.speed
    measured = text.speedup(speed.speedup, speed.confidence)
    details = [text.sentence(study.status_text)] if study.status_text else []
    details += [how_measured(speed), *map(text.sentence, speed.remarks)]
    if study.status == "out-of-budget":
        details.append(f"The budget ended the search before every lever was tried and proved{_also_faster(study)}.")
    elif study.status in ("interrupted", "running"):
        details.append("The search was ended before every lever was tried.")
    if not speed.baseline_agrees:
        sentence = "No claim: two copies of the unmodified script differed, so something disturbed this machine."
        if speed.baseline_speedup is not None:
            itself = text.speedup(speed.baseline_speedup, speed.confidence)
            details.insert(0, f"Unmodified script against itself: {itself}.")
        details.insert(0, f"The plan measured {measured}, but the baseline was too unstable to support that claim.")
        return Headline("bad", sentence, tuple(details))
    details += quality_details(comparison.quality)
    if study.verification is None:
        details.append("This is the best of several comparisons; it was not verified again on fresh launches.")
    if not is_speed(study.objective):
        return _by_objective(study, comparison, details)
    if speed.verdict == "faster":
        details[:0] = _gain_of_the_run(study, speed)
        faster = f"{ratio_words(speed)}, {quality_phrase(comparison.quality)}."
        return Headline(quality_tone(comparison.quality), faster, tuple(details))
    return Headline("neutral", _not_faster(speed, measured), tuple(details))


def _by_objective(study: Study, comparison: Comparison, details: list[str]) -> Headline:
    """The headline if the objective is not only speed."""
    if judge(study.objective, comparison).verdict != "better":
        return Headline("neutral", not_better(study.objective, comparison), tuple(details))
    sentence = f"{gain_words(study.objective, comparison)}, {quality_phrase(comparison.quality)}."
    return Headline(quality_tone(comparison.quality), sentence, tuple(details))


def _gain_of_the_run(study: Study, speed: SpeedComparison) -> Iterator[str]:
    """The gain of the whole run, if it contains much besides steps."""
    whole = whole_run_speedup(study.run_account, speed.speedup.value) if study.run_account is not None else None
    if whole is not None and study.run_account is not None:
        yield (
            f"Steps are {text.share(study.run_account.step_share.value)} of the run: by this the whole run becomes "
            f"{text.ratio(whole)} as fast from its first step on (computed, not measured)."
        )


def _not_faster(speed: SpeedComparison, measured: str) -> str:
    if speed.verdict == "slower":
        return f"No gain: the levers looked faster, but the whole plan is slower, {measured}."
    if speed.verdict == "no-effect":
        return f"No gain: the levers looked faster, but the whole plan makes no difference, {measured}."
    return f"Inconclusive: fresh launches could not confirm a gain, {measured}."


def _nothing_faster(study: Study) -> Headline:
    if study.plan.settings:
        return Headline("neutral", f"Not verified: {_so_far(study)}")
    metric, limits = _other_metric(study), limit_words(study.objective)
    if metric:
        sentence = f"No lever improved the {metric}{f' with {limits}' if limits else ''}."
    elif any(_unverified(study)):
        sentence = "No lever is shown to make it faster with the same results."
    else:
        sentence = f"No lever made it faster{' with the same results' if any(_lost(study)) else ''}."
    return Headline("neutral", sentence, tuple(_reasons(study)))


def _reasons(study: Study) -> list[str]:
    found: list[str] = []
    if study.status_text:
        found.append(text.sentence(study.status_text))
    if study.account_before is not None and not study.account_before.is_of_calls:
        phase, share = bottleneck(study.account_before)
        if phase:
            found.append(f"Most of a step is {phase} ({text.share(share)}).")
    found += (*_lost(study), *_unverified(study))
    groups = [f"{len(levers)} {words}" for words, levers in _by_result(study) if levers]
    if groups:
        found.append(f"Of {text.count(len(study.outcomes), 'lever')}: {text.listed(groups)}.")
    return found


def _lost(study: Study) -> Iterator[str]:
    """Where speed is the goal, the levers that were faster and changed the results."""
    if _other_metric(study):
        return
    for it in study.outcomes:
        if isinstance(it.verdict, QualityLost) and it.verdict.comparison is not None:
            speed = it.verdict.comparison.speed
            if speed.speedup.low > 1:
                measured = text.speedup(speed.speedup, speed.confidence)
                yield f"{text.one_line(it.lever)} was faster, {measured}, but changed the results."


def _unverified(study: Study) -> Iterator[str]:
    """Where speed is the goal, for each reason the levers that were faster with results that were not verified."""
    gains: dict[str, list[str]] = {}
    for it in study.outcomes:
        if not _other_metric(study) and isinstance(it.verdict, NotVerified) and (gain := _unverified_gain(it.verdict)):
            gains.setdefault(_why_unverified(it.verdict), []).append(f"{text.one_line(it.lever)} {gain}")
    for why, levers in gains.items():
        yield f"Faster, but not verified: {text.listed(levers)}. {why}".rstrip()


def _unverified_gain(verdict: NotVerified) -> str:
    """Empty where it was no faster."""
    if verdict.comparison is None:
        once = verdict.speedup or 0.0
        return f"{text.ratio(once)} in one replicate" if once > 1 else ""
    speedup = verdict.comparison.speed.speedup
    return text.ratio_in_interval(speedup) if speedup.low > 1 else ""


def _why_unverified(verdict: NotVerified) -> str:
    quality = verdict.comparison.quality if verdict.comparison is not None else None
    why = verdict.reason if quality is None else quality.text
    why = text.sentence(why.removeprefix("Not verified: "))
    return why[:1].upper() + why[1:]


def _cannot_be_verified(verdict: Verdict) -> bool:
    """Whether it was faster and its proof stayed open, however much time there is."""
    if not isinstance(verdict, NotVerified) or not _unverified_gain(verdict):
        return False
    quality = verdict.comparison.quality if verdict.comparison is not None else None
    return verdict.comparison is None or (quality is not None and quality.verdict == "not-verified")


def _by_result(study: Study) -> list[tuple[str, list[str]]]:
    """Lever names by outcome, in words that follow a number."""
    skipped = {it.lever: it.verdict for it in study.outcomes if isinstance(it.verdict, Skipped)}
    named = [
        ("kept", Kept),
        ("gave no gain", NoGain),
        ("changed the results", QualityLost),
        ("could not be verified", NotVerified),
        ("failed", Failed),
        ("were measured once and not proved", Seen),
    ]
    groups = [(words, [it.lever for it in study.outcomes if isinstance(it.verdict, kind)]) for words, kind in named]
    groups.append(("already in the script", [lever for lever, verdict in skipped.items() if verdict.already]))
    groups.append(("not worth a trial here", [lever for lever, verdict in skipped.items() if not verdict.already]))
    return groups


def _unfinished(study: Study) -> Headline:
    spent = text.clock(study.spent_seconds)
    start = {
        "interrupted": f"Interrupted with {spent} of trials done",
        "out-of-budget": f"The budget ended the search after {spent}",
    }.get(study.status, f"Not finished, {spent} of trials done")
    details = [text.sentence(study.status_text)] if study.status_text else []
    details += (*_lost(study), *_unverified(study))
    return Headline("neutral", f"{start}: {_so_far(study)}", tuple(details))


def _quick_look(study: Study) -> Headline:
    """The measurements of a quick look, without a claim."""
    looked = [(it.lever, it.verdict) for it in study.outcomes if isinstance(it.verdict, Seen)]
    hidden = [(lever, it) for lever, it in looked if exceeds_bound(it)]
    unclear = [lever for lever, it in looked if not exceeds_bound(it) and _rounds_differ(it)]
    metric = _other_metric(study)
    better = [(text.one_line(lever), it) for lever, it in _best_of(looked) if it.speedup > 1]
    if better:
        sentence = f"Quick look, nothing proved: {_looks(better, metric)}."
    elif hidden:
        sentence = "Quick look, nothing proved: one replicate of each lever showed no gain, or more than is possible."
    elif unclear:
        sentence = "Quick look, nothing proved: rounds differed too much to say what levers give."
    elif looked:
        did_better = f"had less {metric}" if metric else "was faster"
        sentence = f"Quick look, nothing proved: no lever that was measured {did_better} in one replicate."
    else:
        sentence = "Quick look, nothing proved: no lever was measured."
    details = list(_unverified(study))
    details += [text.sentence(study.status_text)] if study.status_text else []
    details += [_hidden_words(hidden)] if hidden else []
    details += [_unclear_words(unclear)] if unclear else []
    details += step_words(study)
    costliest = _costliest(study)
    if costliest is not None:
        details.append(f"The costliest cause that was found: {text.sentence(costliest.title)}")
    return Headline("neutral", sentence, tuple(details))


def _also_faster(study: Study) -> str:
    """What looked faster and was not proved, as the end of a sentence; empty if nothing did."""
    looked = [(it.lever, it.verdict) for it in study.outcomes if isinstance(it.verdict, Seen)]
    best = [it for it in _best_of(looked) if _is_worth_naming(it[1])]
    if not best or _other_metric(study):
        return ""
    return f"; not proved: {_looks([(text.one_line(lever), it) for lever, it in best], '')}"


def _is_worth_naming(it: Seen) -> bool:
    return it.speedup >= _WORTH_NAMING if it.within_launch is None else it.within_launch.low > 1


def _best_of(looked: Sequence[tuple[str, Seen]]) -> list[tuple[str, Seen]]:
    """Those that looked best, without those that noise hides."""
    possible = (it for it in looked if not exceeds_bound(it[1]) and not _rounds_differ(it[1]))
    return sorted(possible, key=lambda it: -it[1].speedup)[:_SEEN_SHOWN]


def _looks(better: Sequence[tuple[str, Seen]], metric: str) -> str:
    """What was seen, and where: levers that a process switched have an interval over its rounds."""
    within = [
        f"{lever} {text.ratio_in_interval(it.within_launch)}" for lever, it in better if it.within_launch is not None
    ]
    others = [
        f"{lever} {text.ratio(1 / it.speedup if metric else it.speedup)}"
        for lever, it in better
        if it.within_launch is None
    ]
    of_what = f"{metric} with " if metric else ""
    parts = [f"{text.listed(within)} within one launch"] if within else []
    parts += [f"{of_what}{text.listed(others)} in one replicate, without an interval"] if others else []
    return "; ".join(parts)


def _costliest(study: Study) -> Finding | None:
    """The cause that costs most, also if only a bound of that is known, though measured costs are listed first."""
    costs = (it for it in study.findings if it.kind == "cost")
    return max(costs, key=lambda it: it.share.value, default=None)


def _hidden_words(hidden: Sequence[tuple[str, Seen]]) -> str:
    """Levers of which more was measured than arithmetic allows, with what it allows."""
    at_most = [f"{text.one_line(lever)} ({text.ratio(it.bound or 0.0)} at most)" for lever, it in hidden[:_SEEN_SHOWN]]
    return f"Noise hides what these give, since more was measured than is possible: {text.listed(at_most)}."


def _rounds_differ(it: Seen) -> bool:
    """Whether the rounds of a launch differed so much that it says nothing on what a lever gives."""
    return it.within_launch is not None and not text.is_worth_showing(it.within_launch)


def _unclear_words(levers: Sequence[str]) -> str:
    named = text.listed([text.one_line(it) for it in levers[:_SEEN_SHOWN]])
    return f"Rounds within one launch differed too much to say what {named} {'gives' if len(levers) == 1 else 'give'}."


def _so_far(study: Study) -> str:
    kept = [(it.lever, it.verdict.comparison) for it in study.outcomes if isinstance(it.verdict, Kept)]
    if not kept:
        metric = _other_metric(study)
        return f"no lever is known to {f'improve the {metric}' if metric else 'be faster'} yet{_also_faster(study)}."
    gains = [f"{text.one_line(lever)} {_gain_of_lever(study, comparison)}" for lever, comparison in kept]
    each = "measured" if len(kept) == 1 else "each measured"
    return f"{text.listed(gains)}, {each} in trials; the whole plan is not verified against the original."


def _other_metric(study: Study) -> str:
    """The objective, if it is not only speed."""
    return "" if is_speed(study.objective) else metric_words(study.objective.metric)


def _gain_of_lever(study: Study, comparison: Comparison) -> str:
    if is_speed(study.objective):
        return text.speedup(comparison.speed.speedup, comparison.speed.confidence)
    words = gain_words(study.objective, comparison)
    return words[:1].lower() + words[1:]


# ---------------------------------------------------------------------------------------------
# Everything except the headline
# ---------------------------------------------------------------------------------------------


def what_was_done(study: Study) -> str:
    """How the figures were obtained, depending on how far the search got."""
    script = text.one_line(study.workload.target, limit=120)
    metric = _other_metric(study)
    improves = f"may improve the {metric} of its training" if metric else "may make its training faster"
    if study.status == "script-failed" and _denied(study):
        return (
            f"hotlap ran {script} unmodified, to find out what {improves}. The isolation of the trial denied it a "
            "write, so it failed and nothing was tried."
        )
    if study.status == "script-failed":
        return (
            f"hotlap ran {script} unmodified, to find out what {improves}. The script itself failed, so nothing was "
            "tried."
        )
    if study.status == "quick-look":
        return (
            f"hotlap ran {script} unmodified on one machine, measured where the time of a training step goes, and took "
            f"a first look at what {improves}, as far as the time allowed. Nothing was proved."
        )
    if all(isinstance(it.verdict, Skipped) for it in study.outcomes):
        return f"hotlap ran {script} unmodified, to find out what {improves}. No change was tried yet."
    return (
        f"hotlap ran {script} unmodified on one machine and tried what {improves}. Promising changes were compared "
        "with the unmodified script in fresh launches that took turns, and checked for whether training still produces "
        "the same results. The script itself was not changed."
    )


def _denied(study: Study) -> bool:
    """Whether the first run failed because its isolation denied a write."""
    ending = study.baseline.ending if study.baseline is not None else None
    return isinstance(ending, Crashed) and bool(ending.denied_path)


def next_commands(study: Study, plan_path: str) -> Iterator[tuple[str, str]]:
    """Use the plan, or resume a search that did not finish."""
    if study.status == "script-failed":
        return
    if study.plan.settings and plan_path:
        command = f"hotlap run {text.command(study.workload, '--plan', plan_path)}"
        yield command, "trains with the plan"
    elif study.plan.settings:
        yield (
            text.of_study("hotlap report --plan-out hotlap.toml", study.directory),
            "writes the plan",
        )
    measured = comparison_of_plan(study)
    if study.status == "finished" and measured is not None and _is_open(measured.speed):
        budget = _budget_words(study.budget_seconds) if study.budget_seconds else ""
        yield _again(study, budget), "again, on a quieter machine"
    if study.status in ("interrupted", "running"):
        yield resuming("tune", study), "continues where this ended"
    elif study.status == "quick-look":
        budget = _budget_words(study.needed_seconds) if study.needed_seconds else ""
        looked = any(isinstance(it.verdict, Seen) for it in study.outcomes)
        yield _again(study, budget), "proves what was only measured once" if looked else "tries the levers"
    elif study.status == "out-of-budget":
        budget = _budget_words(study.needed_seconds or 2 * (study.budget_seconds or _USUAL_BUDGET_SECONDS))
        yield _again(study, budget), "looks further"
    hopeless = [it.verdict for it in study.outcomes if _cannot_be_verified(it.verdict)]
    if not study.plan.settings and hopeless and not _other_metric(study):
        limit = study.needed_seconds or study.budget_seconds
        budget = _budget_words(limit) if limit else ""
        yield _again(study, budget, "--accept-unverified"), "keeps what cannot be verified, too"
    if not study.plan.settings and study.findings:
        costliest = _costliest(study)
        shown, what = (costliest, "costliest cause") if costliest is not None else (study.findings[0], "first finding")
        yield f"hotlap findings {text.shell_word(shown.rule)}", f"explains the {what}"


def _is_open(speed: SpeedComparison) -> bool:
    """Whether another try may decide what this one could not."""
    return not speed.baseline_agrees or speed.verdict == "inconclusive"


def _again(study: Study, budget: str, *more: str) -> str:
    given = study.repeated_options or (*option_words(study.objective), *study.narrowed_by)
    options = [*map(text.shell_word, given), *more, *(("--budget", budget) if budget else ())]
    return " ".join(("hotlap tune", *options, text.command(study.workload)))


def sides(study: Study) -> tuple[str, str]:
    """The unmodified script, and the plan unless it was dropped."""
    return "before", "after" if study.plan.settings else "given up"


def result(entry: Entry) -> str:
    """The result of the search in a few words; a ratio always with its interval."""
    if entry.status == "quick-look":
        return "quick look, nothing proved"
    if entry.speedup is not None and not entry.baseline_agrees:
        return "no claim: disturbed"
    if entry.speedup is not None and entry.claimed:
        return f"{text.ratio(entry.speedup.value)} ({text.interval(entry.speedup)})"
    if entry.speedup is not None and entry.verdict == "faster":
        return "no claim: the plan was dropped"
    if entry.speedup is not None:
        return f"no gain shown ({text.interval(entry.speedup)})"
    return "nothing faster" if entry.status == "finished" else entry.status.replace("-", " ")


def _budget_words(seconds: float) -> str:
    """A budget as an argument: ``440s`` or ``12m``, rounded up."""
    whole = math.ceil(seconds)
    return f"{whole // 60}m" if whole % 60 == 0 else f"{whole}s"
