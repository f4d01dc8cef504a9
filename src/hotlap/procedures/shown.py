"""What a study shows of a plan's verification: the comparison, the losses and times of both, and their accounts."""

from __future__ import annotations

from hotlap.experiment.observe import account_of
from hotlap.experiment.prove import Prover
from hotlap.measure.parity.curves import loss_curves
from hotlap.measure.timings import timings
from hotlap.procedures.verify import Verification
from hotlap.records import Comparison, LossCurves, Run


def shown_by(prover: Prover, result: Verification) -> dict[str, object]:
    """The fields of a study that a verification fills."""
    compared = prover.compared_runs(result.comparison.candidate) or (result.baseline_run, result.run)
    return {
        "verification": result.comparison,
        "losses": _curves(prover, *compared, result.comparison),
        "timings": timings(result.replicates),
        "account_before": account_of(result.baseline_run)[0],
        "account_after": account_of(result.run)[0],
    }


def _curves(prover: Prover, baseline: Run, candidate: Run, comparison: Comparison) -> LossCurves | None:
    """The losses of both; none for steps with other numbers of samples, which cannot be compared one by one."""
    if prover.samples_factor(comparison.candidate) != 1:
        return None
    return loss_curves(baseline, candidate, comparison.quality)
