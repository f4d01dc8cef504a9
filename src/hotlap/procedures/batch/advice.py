"""Advice on another batch size: measure the noise of the script's gradients, and apply published rules to it."""

from __future__ import annotations

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.observe import Observation
from hotlap.experiment.trials import Trials
from hotlap.measure.batch_advice import advise
from hotlap.measure.gradient_noise import noise_scale
from hotlap.records import GradientNoise, MeasureGradientNoise

_ASKED = MeasureGradientNoise()
_STEPS = _ASKED.groups * _ASKED.gradients + 1


def note_advice(trials: Trials, draft: StudyDraft, observation: Observation, factor: float) -> None:
    """Fill in the study's ``batch_advice`` for a batch that is ``factor`` times as large; none without an optimizer."""
    optimizers = observation.facts.optimizers
    if not optimizers:
        return
    noise, missing = _noise(trials, draft, observation)
    own = max(1, round(observation.account.samples_per_step))
    draft.update(batch_advice=advise(own, max(1, round(factor * own)), optimizers[0], noise, missing))


def _noise(trials: Trials, draft: StudyDraft, observation: Observation) -> tuple[GradientNoise | None, str]:
    """The noise scale, or a sentence on why it was not measured."""
    facts = observation.facts
    if facts.processes > 1:
        return None, "Several processes train, whose gradients are averaged."
    if len(facts.optimizers) > 1 or facts.step_source != "optimizer":
        return None, "The script does not step with a single optimizer of torch."
    if not trials.fits(trials.costs.of_launch(plans_of.EMPTY, _STEPS)):
        return None, "The budget left no time for it."
    draft.report("trial", "How noisy the gradients are")
    assignment = msgspec.structs.replace(trials.assignment(), instruments=(_ASKED,))
    run = trials.launch(assignment, steps=_STEPS)
    found = noise_scale(run.gradient_groups)
    return (found, "") if found is not None else (None, "Too few gradients could be compared.")
