"""Note what first measurements showed of strategies that were predicted."""

from __future__ import annotations

import math
from statistics import fmean

import msgspec

from hotlap.experiment.draft import StudyDraft
from hotlap.records import Plan, Replicate, Run, Setting


def note_first_ratio(draft: StudyDraft, incumbent: Plan, setting: Setting, turns: Replicate, arm: int) -> None:
    """Note it next to the prediction, if there is one and the strategy took turns with the unmodified script."""
    choice = draft.study.strategies
    if choice is None or incumbent.settings or all(it.setting != setting for it in choice.forecasts):
        return
    logarithms = [math.log(other / own) for own, other in zip(turns.rounds[0], turns.rounds[arm], strict=True)]
    ratio, peak = math.exp(fmean(logarithms)), _peak_of_a_rank(turns.runs[arm])
    forecasts = tuple(
        msgspec.structs.replace(it, first_ratio=ratio, first_peak_bytes=peak) if it.setting == setting else it
        for it in choice.forecasts
    )
    draft.update(strategies=msgspec.structs.replace(choice, forecasts=forecasts))


def _peak_of_a_rank(run: Run) -> int:
    return run.device_peak_bytes or run.host_peak_bytes // max(1, run.facts.processes)
