"""The gates over all ranks: the losses of every process, and the gradients that they exchanged.

A script in several processes reports the losses of its lowest rank. A fault of one process alone (other data, a
gradient that was not exchanged) is seen there only later, through the weights, or never.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from hotlap.records import GateResult, Run

_Gate = Callable[[int], GateResult]


def ranks_of(baseline: Run, candidate: Run) -> int:
    """The number of ranks whose losses both runs have; 1 for a run of one process."""
    return max(1, min(len(baseline.rank_losses), len(candidate.rank_losses)))


def of_rank(run: Run, rank: int) -> Run:
    """The run with the losses of this rank. What a rank lost to NaN is None in them."""
    if rank == 0 or rank >= len(run.rank_losses):
        return run
    steps = msgspec.structs.replace(run.steps, loss=run.rank_losses[rank], not_finite=())
    return msgspec.structs.replace(run, steps=steps)


def on_every_rank(ranks: int, gate: _Gate) -> GateResult:
    """The gate's least favourable result over all ranks, with the rank that it is of."""
    results = [gate(rank) for rank in range(ranks)]
    worst = max(range(ranks), key=lambda rank: (_severity(results[rank]), results[rank].found or 0.0))
    result = results[worst]
    if ranks == 1:
        return result
    if result.passed:
        text = f"{result.text.removesuffix('.')}, on each of {ranks} ranks."
    else:
        text = f"On rank {worst}: {result.text[:1].lower()}{result.text[1:]}"
    return msgspec.structs.replace(result, text=text)


def exchanged_gradients(baseline: Run, candidate: Run) -> GateResult | None:
    """A failed gate where ranks had the same first gradients without the lever, and have different ones with it.

    None where they are the same, and where nothing can be compared.
    """
    paths, theirs = baseline.rank_gradients_paths, candidate.rank_gradients_paths
    if len(paths) < 2 or len(paths) != len(theirs):
        return None
    from hotlap.measure.parity.first_step import first_difference  # imports numpy, which only this needs

    if first_difference(paths) != "" or not (name := first_difference(theirs)):
        return None
    text = f"After the first backward pass the gradient of {name} is no longer the same on all {len(theirs)} ranks."
    return GateResult(gate="G2", passed=False, text=text)


def _severity(result: GateResult) -> int:
    return {True: 0, None: 1, False: 2}[result.passed]
