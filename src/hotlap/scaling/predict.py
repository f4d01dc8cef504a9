"""The scaling curve: a simulated step for each number of ranks and strategy."""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.records import (
    Cluster,
    CollectiveName,
    MeasuredStep,
    ScaleLimit,
    ScalePoint,
    ScalePrediction,
    Strategy,
    StrategyChange,
    ValidatedError,
)
from hotlap.scaling.arithmetic import checkpoint_interval, cost_per_million, fits, peak_bytes, straggler_seconds
from hotlap.scaling.links import collective_seconds
from hotlap.scaling.schedules import tasks_of
from hotlap.scaling.simulate import simulate

STRATEGIES: tuple[Strategy, ...] = ("ddp", "zero-1", "fsdp2")
_SAME = 0.01
"""A strategy that is faster by less than this is no reason to change."""

_LOSS_WORTH_A_NAME = 0.02


def rank_counts(cluster: Cluster) -> tuple[int, ...]:
    """One rank, then twice as many each time up to all devices, by whole nodes beyond the first."""
    total = cluster.nodes * cluster.devices_per_node
    counts, size = {1, total}, 2
    while size < cluster.devices_per_node:
        counts.add(size)
        size *= 2
    size = cluster.devices_per_node
    while size < total:
        counts.add(size)
        size *= 2
    return tuple(sorted(counts))


def predict(
    step: MeasuredStep,
    cluster: Cluster,
    *,
    counts: Sequence[int] = (),
    strategies: Sequence[Strategy] = STRATEGIES,
    errors: Sequence[ValidatedError] = (),
    assumptions: Sequence[str] = (),
) -> ScalePrediction:
    """Predict the step of each number of ranks (default: :func:`rank_counts`) under each strategy."""
    points = tuple(
        point_of(step, cluster, ranks, strategy, errors)
        for ranks in counts or rank_counts(cluster)
        for strategy in strategies
    )
    return ScalePrediction(
        step=step,
        cluster=cluster,
        points=points,
        changes=changes_of(points),
        errors=tuple(errors),
        assumptions=tuple(assumptions),
    )


def point_of(
    step: MeasuredStep, cluster: Cluster, ranks: int, strategy: Strategy, errors: Sequence[ValidatedError] = ()
) -> ScalePoint:
    """Simulate one step. On one rank no strategy does anything."""
    slowdown = cores_slowdown(step, cluster, ranks)
    if ranks == 1:
        seconds, exposed = step.seconds, 0.0
    else:

        def cost(name: CollectiveName, size_bytes: float) -> float:
            return collective_seconds(name, size_bytes, ranks, cluster)

        found = simulate(tasks_of(strategy, step, ranks, cost, slowdown), hidden_share_of(strategy, cluster))
        seconds, exposed = found.seconds, found.exposed_seconds
    waits = straggler_seconds(step, ranks) * slowdown
    seconds += waits
    throughput = ranks * step.samples / seconds
    peak = peak_bytes(strategy, step, ranks)
    room = fits(peak, cluster.device_memory_bytes)
    price = cluster.price_per_device_hour
    return ScalePoint(
        ranks=ranks,
        strategy=strategy,
        step_seconds=seconds,
        efficiency=step.seconds / seconds,
        samples_per_second=throughput,
        exposed_seconds=exposed,
        straggler_seconds=waits,
        peak_bytes=peak,
        fits=room,
        limit=_limit(step, seconds, waits, slowdown, fits_here=room is not False),
        cost_per_million_samples=None if price is None else cost_per_million(throughput, ranks, price),
        checkpoint_every_seconds=_checkpoints(cluster, ranks),
        inside_validation=not cluster.device
        and any(it.strategy == strategy and ranks <= it.most_ranks for it in errors),
    )


def hidden_share_of(strategy: Strategy, cluster: Cluster) -> float:
    """The share of communication that computing can hide. On the processor there are no streams: FSDP2 waits for each
    of its collectives."""
    return 0.0 if strategy == "fsdp2" and cluster.cores else cluster.hidden_share


def cores_slowdown(step: MeasuredStep, cluster: Cluster, ranks: int) -> float:
    """How many times longer computing takes where the processes of a node want more cores than it has."""
    if not cluster.cores or not step.threads:
        return 1.0
    wanted = step.threads * min(ranks, cluster.devices_per_node)
    return max(1.0, wanted / max(cluster.cores, step.threads))


def changes_of(points: Sequence[ScalePoint]) -> tuple[StrategyChange, ...]:
    """From how many ranks on which strategy is the best: the fastest that fits, and no change for less than 1 %."""
    changes: list[StrategyChange] = []
    for ranks in sorted({it.ranks for it in points if it.ranks > 1}):
        possible = [it for it in points if it.ranks == ranks and it.fits is not False]
        if not possible:
            continue
        fastest = min(it.step_seconds for it in possible)
        good = [it for it in possible if it.step_seconds <= (1 + _SAME) * fastest]
        usual = changes[-1].strategy if changes else STRATEGIES[0]
        best = next((it for it in good if it.strategy == usual), good[0])
        if not changes or best.strategy != changes[-1].strategy:
            changes.append(StrategyChange(ranks=ranks, strategy=best.strategy))
    return tuple(changes)


def best_points(prediction: ScalePrediction) -> tuple[ScalePoint, ...]:
    """The point of the best strategy for each number of ranks; where none fits, that which needs least memory."""
    found = []
    for ranks in sorted({it.ranks for it in prediction.points}):
        here = [it for it in prediction.points if it.ranks == ranks]
        wanted = [it.strategy for it in prediction.changes if it.ranks <= ranks][-1:]
        chosen = next((it for it in here if wanted == [it.strategy] and it.fits is not False), None)
        found.append(chosen or min(here, key=lambda it: (it.fits is False, it.peak_bytes)))
    return tuple(found)


def _limit(step: MeasuredStep, seconds: float, waits: float, slowdown: float, *, fits_here: bool) -> ScaleLimit:
    if not fits_here:
        return "memory"
    lost = seconds - step.seconds
    if lost <= _LOSS_WORTH_A_NAME * seconds:
        return "compute"
    for_cores = (slowdown - 1) * step.seconds
    parts: dict[ScaleLimit, float] = {
        "communication": lost - waits - for_cores, "stragglers": waits, "cores": for_cores,
    }  # fmt: skip
    return max(parts, key=lambda it: parts[it])


def _checkpoints(cluster: Cluster, ranks: int) -> float | None:
    if cluster.failure_seconds is None or cluster.checkpoint_seconds is None:
        return None
    return checkpoint_interval(cluster.checkpoint_seconds, cluster.failure_seconds / ranks)
