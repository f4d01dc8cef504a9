"""Reports of studies with objectives other than speed."""

from __future__ import annotations

import msgspec
import pytest
from fakes import FINISHED, LOADER, MIXED, estimate, speed

from hotlap.gain import claimed, claimed_speedup
from hotlap.objective import for_memory
from hotlap.records import (
    Comparison,
    Estimate,
    MetricComparison,
    MetricVerdict,
    NoGain,
    Outcome,
    SampleSource,
    Seen,
    Study,
)
from hotlap.render.headline import headline
from hotlap.render.lever_table import tried_rows
from hotlap.render.sections.metrics import metric_table


def peak(ratio: Estimate, verdict: MetricVerdict) -> MetricComparison:
    return MetricComparison(metric="device_peak_bytes", ratio=ratio, verdict=verdict, replicates=5, confidence=0.95)


def with_memory(found: Study, ratio: float, verdict: MetricVerdict, faster: float, slowdown: float = 1.3) -> Study:
    assert found.verification is not None
    measured = speed(faster, 0.01, "slower" if faster < 1 else "faster")
    metrics = (peak(estimate(ratio, 0.01), verdict),)
    verification = msgspec.structs.replace(found.verification, speed=measured, metrics=metrics)
    return msgspec.structs.replace(found, objective=for_memory(slowdown), verification=verification)


def test_a_memory_gain_is_the_headline_with_its_slowdown() -> None:
    found = headline(with_memory(FINISHED, 0.52, "better", 0.93))
    assert found.tone == "good"
    assert found.sentence.startswith(
        "Peak memory 0.52x of the script's (95 % interval 0.51 to 0.53), time per sample 1.08x (1.06 to 1.09), no "
    )
    assert "faster" not in found.sentence


@pytest.mark.parametrize(
    ("ratio", "verdict", "faster", "said"),
    [
        (
            0.52,
            "better",
            0.5,
            "No gain within the limits (time per sample at most 1.3x of the script's). Peak memory 0.52x",
        ),
        (1.0, "no-effect", 0.99, "No gain. Peak memory 1.00x"),
        (0.95, "inconclusive", 0.99, "Inconclusive: fresh launches could not confirm a gain"),
    ],
)
def test_no_memory_gain_is_claimed_without_one(ratio: float, verdict: MetricVerdict, faster: float, said: str) -> None:
    found = headline(with_memory(FINISHED, ratio, verdict, faster))
    assert found.tone == "neutral" and found.sentence.startswith(said)


def test_no_speedup_is_claimed_for_a_memory_gain() -> None:
    """Claim no speedup in plan files, in the history or in the costs of training."""
    study = with_memory(FINISHED, 0.52, "better", 0.93)
    assert claimed(study) is not None and claimed_speedup(study) is None


def test_a_study_without_a_plan_states_the_objective() -> None:
    nothing = msgspec.structs.replace(FINISHED, objective=for_memory(), verification=None, plan=type(FINISHED.plan)())
    nothing = msgspec.structs.replace(nothing, outcomes=())
    assert headline(nothing).sentence.startswith("No lever improved the peak memory with time per sample at most 1.1x")


def test_a_screening_result_shows_its_memory() -> None:
    outcome = Outcome(lever="loader", setting=LOADER, verdict=Seen(speedup=2.0, metric="peak_bytes", rounds=12))
    looked = msgspec.structs.replace(
        FINISHED, objective=for_memory(), status="quick-look", outcomes=(outcome,), verification=None
    )
    assert "peak memory with loader 0.50x in one replicate, without an interval" in headline(looked).sentence
    (row,) = tried_rows(looked.outcomes)
    assert (row.speedup, row.memory) == ("", "0.50x  no interval")


def test_a_screening_ratio_of_zero_is_not_shown() -> None:
    verdict = Seen(speedup=0.0, metric="peak_bytes", rounds=12)
    (row,) = tried_rows((Outcome(lever="loader", setting=LOADER, verdict=verdict),))
    assert row.memory == ""


def test_a_memory_lever_is_not_called_slower() -> None:
    trial = Comparison(baseline=FINISHED.plan, candidate=FINISHED.plan, speed=speed(0.9, 0.01, "slower"))
    verdict = NoGain(comparison=trial, metric="peak_bytes", reason="Its peak memory becomes 1.200x what it was.")
    (row,) = tried_rows((Outcome(lever="mixed-precision", setting=MIXED, verdict=verdict),))
    assert row.verdict == "no gain" and row.speedup.startswith("0.90x")


@pytest.mark.parametrize(
    ("source", "row"),
    [
        ("loader", ("time per sample", "10.0 ms", "5.00 ms")),
        ("inputs", ("time per step", "350 ms", "175 ms")),
        ("none", ("time per step", "350 ms", "175 ms")),
    ],
)
def test_a_time_is_that_of_a_step_where_its_samples_are_unknown(source: SampleSource, row: tuple[str, ...]) -> None:
    assert FINISHED.account_before is not None and FINISHED.verification is not None
    account = msgspec.structs.replace(FINISHED.account_before, samples_from=source, samples_per_step=35)
    study = msgspec.structs.replace(FINISHED, account_before=account)
    verification = msgspec.structs.replace(
        FINISHED.verification,
        speed=speed(2.0),
        baseline_seconds_per_sample=Estimate(value=0.01, low=0.01, high=0.01, unit="s"),
        metrics=(),
    )
    assert [it[:3] for it in metric_table(study, verification).rows] == [row]
