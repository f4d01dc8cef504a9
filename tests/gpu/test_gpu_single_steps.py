"""Single steps on a real device start from where others did, in whatever form a lever holds their state."""

from __future__ import annotations

import pytest

from hotlap.levers.support.situations import make_setting
from hotlap.records import Setting

pytestmark = pytest.mark.gpu

ATOMICS = 1e-4
"""Sums in a random order may change a step by so much."""


@pytest.mark.parametrize("model", ["mlp", "conv"])
def test_they_are_the_same_from_the_same_state(lab, model: str) -> None:
    _, kept, own = lab.kept(model)
    assert len(kept.kept_steps) >= 10 and own.notes == ()
    assert kept.kept_steps == tuple(it.step for it in own.restored_steps)
    assert all(it.error is not None and it.error < ATOMICS for it in own.restored_steps)


@pytest.mark.parametrize(
    ("setting", "model"),
    [
        (make_setting("mixed-precision", dtype="bfloat16"), "conv"),
        (make_setting("mixed-precision", dtype="float16"), "mlp"),
        (make_setting("matmul-precision", precision="high"), "mlp"),
        (make_setting("fused-optimizer", implementation="fused"), "mlp"),
        (make_setting("channels-last"), "conv"),
        (make_setting("compile", mode="default"), "conv"),
    ],
    ids=lambda it: it if isinstance(it, str) else "-".join([it.lever, *(str(value) for _, value in it.values)]),
)
def test_those_of_a_healthy_lever_are_too(lab, setting: Setting, model: str) -> None:
    found = lab.single_steps(setting, model)
    assert found.passed, found.text
