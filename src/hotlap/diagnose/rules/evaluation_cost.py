"""Evaluation takes a visible part of the run.

## What it is
Between training steps the script runs its model over validation data: forward passes that record no gradients, or those
of a model in evaluation mode that no backward follows.

## Why it is slow
Training stops meanwhile, and no lever for the step makes it faster. A step that is twice as fast makes a run that
spends nine tenths of its time in evaluation 5 % faster.

## How to see it
The time account of the undisturbed run, from its first step on: what an evaluation takes, and after how many steps it
repeats. An evaluation seen once, at the end of an epoch, is assumed to follow every epoch; for one seen once anywhere
else, only an upper bound is given. A run that is observed for ten seconds may not reach its first evaluation; then
nothing is reported, unless its first epoch ends soon afterwards.

## What to do
In this order: run it under `torch.inference_mode()`, so that nothing is kept for a backward; make its batches as large
as memory allows, since no activations are kept; give its loader workers, and `persistent_workers=True` if they start
again each time; use autocast if training does; evaluate less often, or on a part of the data. `hotlap tune --goal
evaluation` tries the first, the workers and autocast, and compares held-out losses.

## When it is fine
If the metric is the purpose of the run, as in a hyperparameter search. Acting in an environment is not an evaluation,
but may look like one if the model is in evaluation mode.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hotlap.diagnose.api import Group
from hotlap.diagnose.outside import cost_of, how_often, part_of, share_words
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.sampled import hottest, sampled_in
from hotlap.diagnose.shares import RUN, between
from hotlap.diagnose.wording import count, levers_for
from hotlap.records import (
    CallSite,
    EvaluationFacts,
    Finding,
    LoaderFacts,
    OutsidePart,
    RunAccount,
    ScriptFacts,
)

title = "Evaluation takes a visible part of the run"
group: Group = "run"

_NAME = "evaluation-cost"
_FEWEST_STEPS_BETWEEN = 2.0


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if evaluation takes 2 % of the run or more."""
    part = part_of(profile, "evaluation")
    if part is None:
        return
    evaluating, training = _loaders(profile.facts)
    if part.every_steps is not None and part.every_steps < _FEWEST_STEPS_BETWEEN and evaluating is None:
        return  # before every step and without data of its own: a policy acts, or the script inspects its training data
    facts = profile.facts.evaluation
    yield Finding(
        rule=_NAME,
        share=cost_of(part),
        title=f"Evaluation takes {share_words(part)}.",
        evidence=(
            *how_often(profile, part),
            *_evidence(profile.facts, evaluating, training),
            *hottest(sampled_in(profile, "evaluation"), "it"),
        ),
        remedy=_remedy(profile.facts, evaluating, training),
        site=facts.site if facts is not None else None,
        levers=levers_for(_NAME),
    )


def _loaders(facts: ScriptFacts) -> tuple[LoaderFacts | None, LoaderFacts | None]:
    """Return the first loader that only evaluates and the first that trains, or None."""
    evaluating = [it for it in facts.loaders if it.evaluates and not it.trains]
    training = [it for it in facts.loaders if it.trains]
    return (evaluating[0] if evaluating else None), (training[0] if training else None)


def _evidence(facts: ScriptFacts, evaluating: LoaderFacts | None, training: LoaderFacts | None) -> Iterator[str]:
    if facts.evaluation is not None and facts.evaluation.with_gradients:
        yield f"the forward passes ({facts.evaluation.forwards} were seen) record the graph for a backward"
    if evaluating is not None:
        than = f"; training's has {_loader_words(training)}" if training is not None else ""
        yield f"its loader over {evaluating.dataset} has {_loader_words(evaluating)}{than}"
    if _lacks_autocast(facts):
        yield f"training runs under autocast ({facts.autocast_dtype}, on {facts.device}), evaluation does not"


def _loader_words(loader: LoaderFacts) -> str:
    batches = f"batches of {loader.batch_size}" if loader.batch_size else "batches created by the data set"
    return f"{batches} and {count(loader.workers, 'worker')}"


def _remedy(facts: ScriptFacts, evaluating: LoaderFacts | None, training: LoaderFacts | None) -> str:
    advice: list[str] = []
    if facts.evaluation is not None and facts.evaluation.with_gradients:
        advice.append("run it under `torch.inference_mode()`")
    if evaluating is not None:
        trained_with = training.batch_size if training is not None else None
        if evaluating.batch_size and (trained_with is None or evaluating.batch_size <= trained_with):
            advice.append("give it larger batches, since it keeps no activations")
        if evaluating.workers == 0:
            advice.append("load its data in workers")
        elif not evaluating.persistent_workers:
            advice.append("keep its workers (`persistent_workers=True`, and one loader for the whole run)")
    if _lacks_autocast(facts):
        advice.append("use autocast for it too")
    tries = " `hotlap tune --goal evaluation` looks for what makes it shorter." if advice else ""
    advice.append("evaluate less often or on a part of the data")
    text = "; ".join(advice)
    return f"{text[0].upper()}{text[1:]}.{tries}"


def _lacks_autocast(facts: ScriptFacts) -> bool:
    return bool(facts.autocast_dtype) and facts.evaluation is not None and not facts.evaluation.autocast_dtype


_LINE = CallSite(role="call", file="/home/ada/train.py", line=31)


def _profile(
    share: float,
    *,
    blocks: int = 3,
    every_steps: float | None = 50.0,
    facts: EvaluationFacts | None = None,
    loaders: tuple[LoaderFacts, ...] = (),
) -> Profile:
    estimate = between(share, share * 0.9, min(1.0, share * 1.05), RUN)
    part = OutsidePart(kind="evaluation", blocks=blocks, seconds=4.0, every_steps=every_steps, share=estimate)
    return Profile(
        facts=ScriptFacts(evaluation=facts or EvaluationFacts(forwards=300, site=_LINE), loaders=loaders),
        run_account=RunAccount(
            steps=200,
            step_seconds=0.1,
            step_share=between(1 - share, 1 - share, 1 - share, RUN),
            outside=(part,),
            most_speedup=1 / share,
        ),
    )


_TRAINING = LoaderFacts(dataset="Photos", batch_size=64, workers=4, trains=True, starts=4)
_VALIDATION = LoaderFacts(dataset="Photos", batch_size=8, workers=0, evaluates=True, starts=3)

fires = {
    "88 % of the run": _profile(0.88),
    "gradients are recorded, batches are small": _profile(
        0.3, facts=EvaluationFacts(forwards=300, with_gradients=True, site=_LINE), loaders=(_TRAINING, _VALIDATION)
    ),
    "workers start again each time, and training alone runs under autocast": msgspec.structs.replace(
        _profile(0.2),
        facts=ScriptFacts(
            autocast_dtype="bfloat16",
            evaluation=EvaluationFacts(forwards=30, site=_LINE),
            loaders=(_TRAINING, msgspec.structs.replace(_VALIDATION, workers=2, batch_size=128)),
        ),
    ),
    "seen once, at no epoch's end": _profile(0.2, blocks=1, every_steps=None),
}
silent = {
    "nothing measured": Profile(),
    "one percent of the run": _profile(0.01),
    "a policy acts before every step": _profile(0.4, blocks=199, every_steps=1.0),
    "none was seen": msgspec.structs.replace(
        _profile(0.5), run_account=RunAccount(steps=200, step_seconds=0.1, step_share=between(1, 1, 1, RUN))
    ),
}
