"""Time the model alone at other batch sizes: samples per second and memory, with the first batch enlarged or reduced.

Another batch size changes what is learned, so these are no candidates; the curve shows whether a change is worth
considering.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.observe import Observation
from hotlap.experiment.plan_ahead import Launches
from hotlap.experiment.trials import Arm, Trials
from hotlap.procedures.batch.timing import REPLICATES, SizeTimer, cost_of
from hotlap.records import BatchRate, Machine, ReplayBatch

SCALES = (0.5, 2.0, 4.0)
_MEMORY_SHARE = 0.8


def sizes_launches(trials: Trials, observation: Observation, scales: Sequence[float] = SCALES) -> tuple[Launches, ...]:
    """The launches of :func:`measure_batch_sizes`."""
    if not observation.facts.training_loaders:
        return ()
    seconds = sum(cost_of(trials, it) for it in scales)
    return (Launches(2 * REPLICATES * len(scales), seconds, "for the model alone at other batch sizes", spare=True),)


def measure_batch_sizes(
    trials: Trials, draft: StudyDraft, observation: Observation, machine: Machine, scales: Sequence[float] = SCALES
) -> tuple[BatchRate, ...]:
    """Time each size in replicates with the script's own size, both fed from memory, in ascending order.

    Returns nothing if no batch came from a loader. A size that fails ends the search for larger ones.
    """
    if not observation.facts.training_loaders:
        draft.warn("Other batch sizes were not timed: no batch of the script comes from a DataLoader.")
        return ()
    timer = SizeTimer(
        trials=trials,
        draft=draft,
        samples=observation.account.samples_per_step,
        arms=lambda scale: (Arm(instruments=(ReplayBatch(),)), Arm(instruments=(ReplayBatch(scale=scale),))),
        what="The model alone",
        stage="ceilings",
    )
    rates: list[BatchRate] = []
    for scale in scales:
        reason = _obstacle(timer, scale, rates, observation, machine)
        rates.append(timer.failed(scale, reason) if reason else timer.timed(scale))
    if timer.replicates:
        rates.append(timer.own())
        timer.judge()
    return tuple(sorted(rates, key=lambda it: it.scale))


def _obstacle(
    timer: SizeTimer, scale: float, before: Sequence[BatchRate], observation: Observation, machine: Machine
) -> str:
    """Why a size is not tried; empty if it is."""
    failed = next((it for it in before if it.scale > 1 and it.error), None)
    if scale > 1 and failed is not None:
        return f"Not tried, because {failed.samples_per_step:g} did not work."
    if scale * timer.samples < 1:
        return "Not tried: a step has only one sample."
    both = (1 + scale) * observation.run.host_peak_bytes
    if observation.facts.device.startswith("cpu") and both > _MEMORY_SHARE * machine.memory_bytes > 0:
        return "Not tried: next to the unmodified script, it might not fit into memory."
    return "" if timer.trials.fits(cost_of(timer.trials, scale)) else "Not tried: the budget is too small."
