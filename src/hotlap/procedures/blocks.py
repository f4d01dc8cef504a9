"""Measure the repeated blocks of a model, so that those to recompute can be chosen by their costs."""

from __future__ import annotations

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.trials import Trials
from hotlap.records import SECONDS_PER_SAMPLE, MeasureBlocks, Situation

_STEPS = 8


def with_block_costs(trials: Trials, draft: StudyDraft, situation: Situation) -> Situation:
    """The situation with the costs of each block, by one launch; the same where that would choose nothing.

    Only a search for less memory, with a limit for time, chooses blocks.
    """
    limits = [it.most for it in trials.options.objective.limits if it.metric == SECONDS_PER_SAMPLE]
    models = situation.facts.models
    has_blocks = len(models) == 1 and models[0].blocks is not None and not models[0].compiled
    if not limits or not has_blocks or situation.facts.processes > 1:
        return situation
    if not trials.fits(trials.costs.of_launch(plans_of.EMPTY, _STEPS)):
        return situation
    draft.report("ceilings", "The blocks of the model, one by one")
    run = trials.launch(msgspec.structs.replace(trials.assignment(), instruments=(MeasureBlocks(),)), steps=_STEPS)
    return msgspec.structs.replace(situation, block_costs=run.block_costs, most_slowdown=min(limits))
