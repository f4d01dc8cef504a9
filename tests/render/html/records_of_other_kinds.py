"""Records of studies that are not of a search: lengths of inputs, predictions, several processes."""

from __future__ import annotations

from hotlap.records import (
    Batching,
    BatchOrder,
    Cluster,
    Completed,
    Estimate,
    LengthFacts,
    Link,
    MeasuredStep,
    Padding,
    Plan,
    ProcessRate,
    ProcessScaling,
    Run,
    ScalePoint,
    ScalePrediction,
    ScriptFacts,
    Strategy,
)


def padded() -> Run:
    """A run with inputs of which a part is padding."""
    given: BatchOrder = "given"
    by_length: BatchOrder = "sorted"
    ways = tuple(
        Padding(batching=Batching(multiple=multiple, order=order), positions=positions, batches=8, shapes=shapes)
        for multiple, order, positions, shapes in ((0, given, 4096, 1), (1, by_length, 2700, 6))
    )
    lengths = LengthFacts(
        mask="attention_mask",
        sequences=64,
        tokens=2500,
        shortest=3,
        median=31,
        longest=64,
        paddings=ways,
        whole_passes=True,
    )
    return Run(plan=Plan(), ending=Completed(), facts=ScriptFacts(lengths=lengths))


def scale_prediction() -> ScalePrediction:
    """Two numbers of ranks, of a step that was measured on one device."""
    step = MeasuredStep(forward_seconds=0.1, backward_seconds=0.2, optimizer_seconds=0.02)
    link = Link(bytes_per_second=50e9)
    curves: tuple[tuple[Strategy, float, int], ...] = (("ddp", 0.004, 2**41), ("fsdp2", 0.006, 2**38))
    points = tuple(
        ScalePoint(
            ranks=ranks,
            strategy=strategy,
            step_seconds=0.32 / (1 - lost * ranks),
            efficiency=1 - lost * ranks,
            samples_per_second=ranks * 100.0 * (1 - lost * ranks),
            peak_bytes=total_bytes // ranks,
            fits=total_bytes // ranks < 2**36,
        )
        for ranks in (8, 16)
        for strategy, lost, total_bytes in curves
    )
    return ScalePrediction(step=step, cluster=Cluster(within=link, between=link), points=points)


def process_scaling() -> ProcessScaling:
    """One and two processes."""
    alone = ProcessRate(processes=1, step_seconds=0.1, samples_per_second=320.0)
    efficiency = Estimate(value=0.9, low=0.85, high=0.95)
    two = ProcessRate(processes=2, step_seconds=0.11, samples_per_second=580.0, efficiency=efficiency)
    return ProcessScaling(rates=(alone, two), replicates=5, cores=8)
