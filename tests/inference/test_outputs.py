"""What is kept of a model's outputs, and which weights are recognised as drawn at random."""

from __future__ import annotations

import numpy as np
import pytest
from inference.conftest import Launch

from hotlap.measure.quality import outputs_of, random_share
from hotlap.records import CaptureOutputs, ShiftSeeds


def test_each_output_of_each_input_is_kept_once(launch: Launch) -> None:
    run = launch("nested", steps=5, instruments=(CaptureOutputs(),))
    assert run.facts.inputs == 5
    kept = outputs_of(run.outputs_path)
    names = [
        f"{number}/output.{name}" for number in range(5) for name in ("logits", "hidden['all'][0]", "hidden['all'][1]")
    ]
    assert sorted(kept) == sorted([*names, "weights"])
    assert kept["0/output.logits"].shape == (8, 4)
    np.testing.assert_array_equal(kept["0/output.hidden['all'][1]"], kept["0/output.hidden['all'][0]"] + 1)


def test_two_launches_agree_to_the_last_bit(launch: Launch) -> None:
    one, other = (outputs_of(launch("mlp", steps=5, instruments=(CaptureOutputs(),)).outputs_path) for _ in range(2))
    for key, array in one.items():
        np.testing.assert_array_equal(array, other[key])


def test_the_reference_is_float32(launch: Launch) -> None:
    run = launch("mlp_in_bfloat16", "rows_in_bfloat16", steps=5, instruments=(CaptureOutputs(in_float32=True),))
    values = outputs_of(run.outputs_path)["0/output"]
    rounded = (values.view(np.uint32) & 0xFFFF) == 0
    assert not rounded.all()


@pytest.mark.parametrize(
    ("model", "share"), [pytest.param("mlp", 1.0, marks=pytest.mark.slow), ("seeded", 1.0), ("loaded", 0.0)]
)
def test_weights_that_were_drawn_are_distinguished_from_loaded_ones(launch: Launch, model: str, share: float) -> None:
    once = launch(model, steps=1, instruments=(CaptureOutputs(),))
    again = launch(model, steps=1, seed=1, instruments=(ShiftSeeds(), CaptureOutputs()))
    assert random_share(outputs_of(once.outputs_path), outputs_of(again.outputs_path)) == share
