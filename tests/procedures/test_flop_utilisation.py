"""Whatever rates were measured, no step is said to do more than the machine can."""

from __future__ import annotations

from typing import Any

import msgspec
from fakes import FINISHED
from hypothesis import given
from hypothesis import strategies as st
from plain_report import plain

from hotlap.experiment.ceilings import flop_utilisation
from hotlap.records import Ceilings, Machine, ModelFacts, PhaseAccount, ScriptFacts

POSITIVE = st.floats(min_value=1e-6, max_value=1e18)
FORMATS = ("float32", "tf32", "bfloat16", "float16")


class Draft:
    """Keeps warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@given(
    flops=POSITIVE,
    seconds=st.floats(min_value=1e-6, max_value=1e4),
    rates=st.dictionaries(
        st.sampled_from([f"{device}:{it}" for device in ("cpu", "cuda") for it in FORMATS]), POSITIVE
    ),
    device=st.sampled_from(["cpu", "cuda:0"]),
    autocast=st.sampled_from(["", "bfloat16", "float16"]),
    precision=st.sampled_from(["highest", "high"]),
)
def test_it_is_never_above_one_and_a_rate_below_the_steps_own_is_no_ceiling(
    flops: float, seconds: float, rates: dict[str, float], device: str, autocast: str, precision: str
) -> None:
    facts = ScriptFacts(
        device=device,
        autocast_dtype=autocast,
        matmul_precision=precision,
        models=(ModelFacts(kind="Net", parameters=1, flops_per_step=flops),),
    )
    machine = Machine(ceilings=Ceilings(matmul_flops_per_second=tuple(rates.items())))
    draft: Any = Draft()
    share, ceilings = flop_utilisation(facts, machine, PhaseAccount(wall=seconds, samples_per_step=32.0), draft)
    assert share is None or 0 <= share <= 1
    assert (share is None) == (not ceilings)
    assert all(it.bound_speedup is None or it.bound_speedup >= 1 for it in ceilings)
    if draft.warnings:
        assert not ceilings and "The matmul ceiling is left out" in draft.warnings[0]


def test_a_study_that_says_otherwise_is_not_shown_so() -> None:
    """One of an older version, or one that somebody changed."""
    assert "Model FLOP utilisation: 34 %" in plain(FINISHED)
    wrong = plain(msgspec.structs.replace(FINISHED, model_flop_utilisation=1.89))
    assert "FLOP utilisation" not in wrong and "189 %" not in wrong
