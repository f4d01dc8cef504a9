"""Every metric of a launch keeps what the comparison of arms relies on."""

from __future__ import annotations

import math

import pytest

from hotlap.measure.metrics import api
from hotlap.measure.metrics.api import all_metrics, compare_metrics
from hotlap.records import Block, Replicate, Run, ScriptFacts, Steps

KNOWN = Run(
    device_peak_bytes=3 * 2**30,
    host_peak_bytes=2**30,
    resting_bytes=2**28,
    startup_seconds=4.0,
    wall_seconds=9.0,
    facts=ScriptFacts(step_source="call"),
    blocks=(Block(steps=4, samples=32, wall_seconds=0.4, first_step=0),),
    steps=Steps(
        wall_seconds=(0.1,) * 4,
        samples=(8,) * 4,
        phases=(("forward", (0.1,) * 4),),
        outside_seconds=(0.0, 0.0, 0.4, 0.0),
        evaluation_seconds=(0.0, 0.0, 0.4, 0.0),
    ),
)
"""A launch in which everything that metrics use is known."""


@pytest.mark.parametrize("name", all_metrics())
def test_a_metric_conforms(name: str) -> None:
    metric = all_metrics()[name]
    module = __import__(f"{api.__package__}.{name}", fromlist=[name])
    assert module.__doc__ and metric.unit and 0 < metric.smallest_change < 0.5
    assert metric.of_run(Run()) == 0.0
    figure = metric.of_run(KNOWN)
    assert type(figure) is float and math.isfinite(figure) and figure > 0


@pytest.mark.parametrize("name", all_metrics())
def test_it_is_compared_in_every_replicate(name: str) -> None:
    """Equal arms differ by nothing."""
    replicates = [Replicate(runs=(KNOWN,) * 3, rounds=((0.1,),) * 3)] * 3
    found = {it.metric: it for it in compare_metrics(replicates, confidence=0.95)}[name]
    assert (found.ratio.value, found.verdict, found.replicates) == (1.0, "no-effect", 3)
    assert found.baseline == found.candidate and found.smallest_change == all_metrics()[name].smallest_change


@pytest.mark.parametrize("name", all_metrics())
def test_where_one_launch_lacks_it_nothing_is_said(name: str) -> None:
    replicates = [Replicate(runs=(KNOWN, KNOWN, it), rounds=((0.1,),) * 3) for it in (KNOWN, KNOWN, Run())]
    assert name not in {it.metric for it in compare_metrics(replicates, confidence=0.95)}
