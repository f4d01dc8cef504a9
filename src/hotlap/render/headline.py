"""The one sentence that a study comes down to, and what must stand beside it to be honest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from hotlap.gain import comparison_of_plan
from hotlap.objective import is_speed, judge
from hotlap.records import (
    CheckVerdict,
    Comparison,
    Crashed,
    Failed,
    Kept,
    NoGain,
    NotVerified,
    ParityComparison,
    ParityLost,
    Seen,
    Skipped,
    SpeedComparison,
    Study,
)
from hotlap.render import text
from hotlap.render.account import bottleneck
from hotlap.render.disturbance import beside_headline, in_sentence, on_threads_left, step_takes, while_busy
from hotlap.render.objective import gain_words, limit_words, not_better
from hotlap.render.run_account import bound_sentence, whole_run_speedup
from hotlap.wording import ending_text, metric_words

Tone = Literal["good", "neutral", "bad"]

_CLOSE = 0.9
"""A loader or a model that alone takes at least this share of the step is what binds it."""


_SEEN_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Headline:
    """``sentence`` in full; ``beside`` are further sentences, ``output`` a script's last words, verbatim."""

    tone: Tone
    sentence: str
    beside: tuple[str, ...] = ()
    output: str = ""


def headline(study: Study) -> Headline:
    """What the study says, in one sentence."""
    if study.status == "script-failed":
        return _script_failed(study)
    if study.kind == "profile":
        return _profiled(study)
    if study.kind == "check":
        return _checked(study)
    found = _searched(study)
    busy = beside_headline(study)
    return replace(found, beside=(*found.beside, busy)) if busy else found


def _searched(study: Study) -> Headline:
    if study.status == "quick-look":
        return _quick_look(study)
    measured = comparison_of_plan(study)
    if measured is not None:
        return _verified(study, measured)
    return _nothing_faster(study) if study.status == "finished" else _unfinished(study)


def parity_phrase(parity: ParityComparison | None) -> str:
    """``no difference found within 0.1 % over 300 steps``, and its like for the other verdicts."""
    if parity is None:
        return "not verified that training still produces the same results"
    over = f" over {text.count(parity.steps, 'step')}" if parity.steps else ""
    if parity.verdict == "exact":
        return f"losses agree to the last bit{over}"
    if parity.verdict == "within":
        limit = parity_limit(parity)
        return f"no difference found{f' within {text.share(limit)}' if limit is not None else ''}{over}"
    if parity.verdict == "lost":
        return "but training no longer produces the same results"
    return "not verified that training still produces the same results"


def parity_limit(parity: ParityComparison) -> float | None:
    """The limit that the trajectory (or else the last gate with a limit) had to keep, as a share."""
    limits = {gate.gate: gate.limit for gate in parity.gates if gate.limit is not None and gate.passed}
    return limits.get("G3", limits.get("G4", limits.get("G1")))


def how_measured(speed: SpeedComparison) -> str:
    """The evidence behind a ratio: sets, rounds, noise."""
    return (
        f"Measured in {text.count(speed.sets, 'replicate')} of fresh launches with "
        f"{text.count(speed.rounds, 'round')} each. Run-to-run noise is {text.share(speed.noise_floor)}; the "
        f"smallest detectable effect is {text.share(speed.smallest_detectable)}."
    )


def _verified(study: Study, comparison: Comparison) -> Headline:
    speed = comparison.speed
    measured = text.speedup(speed.speedup, speed.confidence)
    beside = [text.sentence(study.status_text)] if study.status_text else []
    beside += [how_measured(speed), *map(text.sentence, speed.remarks)]
    if study.status == "out-of-budget":
        beside.append("The budget ended the search before every lever was tried.")
    elif study.status in ("interrupted", "running"):
        beside.append("The search was ended before every lever was tried.")
    if not speed.baseline_agrees:
        sentence = "No claim: two copies of the unmodified script differed, so something disturbed this machine."
        if speed.baseline_speedup is not None:
            itself = text.speedup(speed.baseline_speedup, speed.confidence)
            beside.insert(0, f"Unmodified script against itself: {itself}.")
        beside.insert(0, f"The plan measured {measured}, but the baseline was too unstable to support that claim.")
        return Headline("bad", sentence, tuple(beside))
    beside += _about_numbers(comparison.parity)
    if study.verification is None:
        beside.append("This is the best of several comparisons; it was not verified again on fresh launches.")
    if not is_speed(study.objective):
        return _by_objective(study, comparison, beside)
    if speed.verdict == "faster":
        beside[:0] = _gain_of_the_run(study, speed)
        faster = f"{ratio_words(speed)}, {parity_phrase(comparison.parity)}."
        return Headline(_tone(comparison.parity), faster, tuple(beside))
    return Headline("neutral", _not_faster(speed, measured), tuple(beside))


def _by_objective(study: Study, comparison: Comparison, beside: list[str]) -> Headline:
    """Where something else than speed alone was to become better."""
    if judge(study.objective, comparison).verdict != "better":
        return Headline("neutral", not_better(study.objective, comparison), tuple(beside))
    sentence = f"{gain_words(study.objective, comparison)}, {parity_phrase(comparison.parity)}."
    return Headline(_tone(comparison.parity), sentence, tuple(beside))


def _gain_of_the_run(study: Study, speed: SpeedComparison) -> Iterator[str]:
    """What the gain of a step is to the whole run, where much else happens in it."""
    whole = whole_run_speedup(study.run_account, speed.speedup.value) if study.run_account is not None else None
    if whole is not None and study.run_account is not None:
        yield (
            f"Steps are {text.share(study.run_account.step_share.value)} of the run: by this the whole run becomes "
            f"{text.ratio(whole)} as fast from its first step on (computed, not measured)."
        )


def ratio_words(speed: SpeedComparison) -> str:
    """``1.83x faster (95 % interval 1.79 to 1.88)``."""
    return (
        f"{text.ratio(speed.speedup.value)} faster ({text.confidence(speed.confidence)} {text.interval(speed.speedup)})"
    )


def _about_numbers(parity: ParityComparison | None) -> list[str]:
    """What stands behind the words about sameness, less what the headline has said already."""
    if parity is None:
        return []
    if parity.verdict not in ("exact", "within"):
        return [text.sentence(parity.text)] if parity.text else []
    found = next((gate.found for gate in parity.gates if gate.gate == "G3" and gate.found), None)
    largest = f"The largest difference of the smoothed loss was {text.share(found)}." if found else ""
    beyond = text.one_line(parity.text).partition(". ")[2]
    return [line for line in (largest, text.sentence(beyond)) if line]


def _tone(parity: ParityComparison | None) -> Tone:
    if parity is None or parity.verdict == "not-verified":
        return "neutral"
    return "bad" if parity.verdict == "lost" else "good"


def _not_faster(speed: SpeedComparison, measured: str) -> str:
    if speed.verdict == "slower":
        return f"No gain: the levers were faster one by one, but slower together, {measured}."
    if speed.verdict == "no-effect":
        return f"No gain: the levers were faster one by one, but make no difference together, {measured}."
    return f"Inconclusive: fresh launches could not confirm a gain, {measured}."


def _nothing_faster(study: Study) -> Headline:
    if study.plan.settings:
        return Headline("neutral", f"Not verified: {_so_far(study)}")
    sentence, metric = "No lever made it faster.", _other_metric(study)
    if metric:
        limits = limit_words(study.objective)
        sentence = f"No lever improved the {metric}{f' with {limits}' if limits else ''}."
    return Headline("neutral", sentence, tuple(_reasons(study)))


def _reasons(study: Study) -> list[str]:
    found: list[str] = []
    if study.status_text:
        found.append(text.sentence(study.status_text))
    if study.account_before is not None:
        phase, share = bottleneck(study.account_before)
        if phase:
            found.append(f"Most of a step is {phase} ({text.share(share)}).")
    groups = [f"{len(levers)} {words}" for words, levers in _by_result(study) if levers]
    if groups:
        found.append(f"Of {text.count(len(study.outcomes), 'lever')}: {text.listed(groups)}.")
    return found


def _by_result(study: Study) -> list[tuple[str, list[str]]]:
    """Lever names by what became of them, in words that follow a number."""
    skipped = {it.lever: it.verdict for it in study.outcomes if isinstance(it.verdict, Skipped)}
    named = [
        ("kept", Kept),
        ("gave no gain", NoGain),
        ("changed the results", ParityLost),
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
    beside = [text.sentence(study.status_text)] if study.status_text else []
    return Headline("neutral", f"{start}: {_so_far(study)}", tuple(beside))


def _quick_look(study: Study) -> Headline:
    """What was seen where nothing could be proved, or should be: no claim."""
    looked = [(it.lever, it.verdict) for it in study.outcomes if isinstance(it.verdict, Seen)]
    best = sorted(looked, key=lambda it: -it[1].speedup)[:_SEEN_SHOWN]
    metric = _other_metric(study)
    shown = [
        f"{text.one_line(lever)} {text.ratio(1 / it.speedup if metric else it.speedup)}"
        for lever, it in best
        if it.speedup > 1
    ]
    if shown:
        of_what = f"{metric} with " if metric else ""
        sentence = f"Quick look, nothing proved: {of_what}{text.listed(shown)} in one replicate, without an interval."
    elif looked:
        better = f"had less {metric}" if metric else "was faster"
        sentence = f"Quick look, nothing proved: no lever that was measured {better} in one replicate."
    else:
        sentence = "Quick look, nothing proved: no lever was measured."
    beside = [text.sentence(study.status_text)] if study.status_text else []
    beside += _step_words(study)
    costs = [it for it in study.findings if it.kind == "cost"]
    if costs:
        costliest = max(costs, key=lambda it: it.share.value)
        beside.append(f"The costliest cause that was found: {text.sentence(costliest.title)}")
    return Headline("neutral", sentence, tuple(beside))


def _so_far(study: Study) -> str:
    kept = [(it.lever, it.verdict.comparison) for it in study.outcomes if isinstance(it.verdict, Kept)]
    if not kept:
        metric = _other_metric(study)
        return f"no lever is known to {f'improve the {metric}' if metric else 'be faster'} yet."
    gains = [f"{text.one_line(lever)} {_gain_of_lever(study, comparison)}" for lever, comparison in kept]
    each = "measured" if len(kept) == 1 else "each measured"
    return f"{text.listed(gains)}, {each} in trials; the whole plan is not verified against the original."


def _other_metric(study: Study) -> str:
    """What is to become better, where that is not speed alone."""
    return "" if is_speed(study.objective) else metric_words(study.objective.metric)


def _gain_of_lever(study: Study, comparison: Comparison) -> str:
    if is_speed(study.objective):
        return text.speedup(comparison.speed.speedup, comparison.speed.confidence)
    words = gain_words(study.objective, comparison)
    return words[:1].lower() + words[1:]


def _checked(study: Study) -> Headline:
    """The answer of a check, whose sentences are the study's."""
    if study.check_verdict is None:
        return Headline("neutral", "Not finished: the check gave no answer.")
    tones: dict[CheckVerdict, Tone] = {"passed": "good", "failed": "bad", "inconclusive": "neutral"}
    beside = [text.sentence(study.status_text)]
    if study.verification is not None:
        beside.append(how_measured(study.verification.speed))
    return Headline(tones[study.check_verdict], f"hotlap check: {study.check_verdict}.", tuple(beside))


def _profiled(study: Study) -> Headline:
    """How many causes were found, and what the step is made of."""
    beside = [*_step_words(study), *_run_words(study)]
    if study.status != "finished":
        why = [text.sentence(study.status_text)] if study.status_text else []
        return Headline("neutral", "Not finished: not all causes were checked.", (*why, *beside))
    costs = [it for it in study.findings if it.kind == "cost"]
    wrong = [it for it in study.findings if it.kind == "wrong-numbers"]
    others = len(study.findings) - len(costs) - len(wrong)
    if others:
        beside.append(f"Also {text.count(others, 'risk or hint', 'risks and hints')}; see below.")
    if not study.profiled_steps:
        beside.append("The script was not profiled, so most causes could not be checked; see the warnings.")
    if wrong:
        return Headline("bad", f"Fix the numbers first: {text.one_line(wrong[0].title)}", tuple(beside))
    if costs:
        largest = f"{text.cost(costs[0].share)} {text.whole_of(costs[0].share)}"
        sentence = f"1 cause of lost time was found; it costs {largest}."
        if len(costs) > 1:
            sentence = f"{len(costs)} causes of lost time were found; the largest costs {largest}."
        return Headline("neutral", in_sentence(study, sentence), tuple(beside))
    if not study.profiled_steps:
        return Headline("neutral", "No cause of lost time was found in the time account.", tuple(beside))
    busy = while_busy(study, "account", "profile") or on_threads_left(study)
    if busy:
        return Headline("neutral", f"No known cause of lost time was found {busy}: profile again.", tuple(beside))
    return Headline("good", "No known cause of lost time was found.", tuple(beside))


def _run_words(study: Study) -> Iterator[str]:
    """What tuning the step can give the whole run at most."""
    bound = bound_sentence(study.run_account) if study.run_account is not None else ""
    if bound:
        yield bound


def _step_words(study: Study) -> Iterator[str]:
    """How long a step is, what most of it is, and what binds it by the ceilings."""
    account = study.account_before
    if account is None or account.wall <= 0:
        return
    phase, share = bottleneck(account)
    yield f"A step {step_takes(study, account.wall)}; its largest part is {phase} ({text.share(share)})."
    bounds = {it.name: it.bound_speedup for it in study.ceilings if it.bound_speedup}
    if "model-alone" not in bounds or "loader-alone" not in bounds:
        return
    loader_alone, model_alone = (min(1.0, 1 / bounds[name]) for name in ("loader-alone", "model-alone"))
    if model_alone >= _CLOSE and model_alone >= loader_alone:
        yield f"It is bound by the model, which alone takes {text.share(model_alone)} of that."
    elif loader_alone >= _CLOSE:
        yield f"It is bound by the loader, which alone takes {text.share(loader_alone)} of that."
    else:
        yield (
            f"Alone, the loader takes {text.share(loader_alone)} of that and the model {text.share(model_alone)}: "
            "neither binds it by itself."
        )


def _script_failed(study: Study) -> Headline:
    ending = study.baseline.ending if study.baseline is not None else None
    why = text.one_line(ending_text(ending)) if ending is not None else ""
    error = text.one_line(getattr(ending, "error", ""))
    sentence = text.sentence(study.status_text or f"The script failed: {error or why or 'no reason is known'}")
    beside = [text.sentence(why)] if why and (error or why).rstrip(".") not in sentence else []
    if isinstance(ending, Crashed) and ending.denied_path:
        beside.append(
            "The trial's isolation caused this, not the script: `hotlap doctor` shows what this machine supports."
        )
    if study.baseline is not None and study.baseline.output_path:
        beside.append(f"Its whole output is in {text.one_line(study.baseline.output_path)}")
    output = text.last_lines(getattr(ending, "output_tail", ""), 12)
    return Headline("bad", sentence, tuple(beside), output)
