"""What a child's last message looks like on the line, where the script's own numbers are not finite."""

from __future__ import annotations

import math
import sys

import msgspec
import pytest

from hotlap.records import FromChild, Invariants, OptimizerFacts, Report, Run, ScriptFacts, Steps
from hotlap.runtime.channel import encoded

LARGEST = sys.float_info.max


@pytest.mark.parametrize(
    ("number", "told"), [(0.5, 0.5), (math.inf, LARGEST), (-math.inf, -LARGEST), (math.nan, LARGEST)], ids=str
)
def test_a_report_survives_numbers_that_json_lacks(number: float, told: float) -> None:
    """``clip_grad_norm_(parameters, inf)`` is how norms are measured, and learning rates go wrong."""
    report = Report(
        run=Run(
            facts=ScriptFacts(optimizers=(OptimizerFacts(kind="SGD", parameters=1, learning_rate=number),)),
            invariants=Invariants(learning_rates=((number,),), clip_values=(number,)),
            steps=Steps(wall_seconds=(0.1,), loss=(None,)),
        )
    )
    arrived = msgspec.json.decode(encoded(report), type=FromChild)
    assert isinstance(arrived, Report)
    assert arrived.run.facts.optimizers[0].learning_rate == told
    assert arrived.run.invariants.learning_rates == ((told,),)
    assert arrived.run.invariants.clip_values == (told,)
    assert arrived.run.steps == report.run.steps
