"""Gate G0 alone: what passes it, what does not, and what is inconclusive."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from hotlap.measure.parity.invariants import NAMES, compare_invariants
from hotlap.records import (
    Invariants,
)

STEPS = 4
SEEN = Invariants(
    learning_rates=((0.1, 0.01),) * STEPS,
    weight_decays=((0.01, 0.0),) * STEPS,
    other_hyperparameters=('[{"betas":[0.9,0.999]}]',),
    clip_values=(1.0,) * STEPS,
    samples=(32,) * STEPS,
    batch_hashes=("a", "b", "c", "d"),
    dropout=(0.1, 0.1),
    training=(True,) * STEPS,
    trainable=(6,) * STEPS,
)
CHANGED: Mapping[str, object] = {
    "learning_rates": ((0.1, 0.01),) * 3 + ((0.105, 0.01),),
    "weight_decays": ((0.0, 0.0),) * STEPS,
    "other_hyperparameters": ('[{"betas":[0.9,0.99]}]',),
    "clip_values": (0.5,) * STEPS,
    "samples": (32, 32, 16, 32),
    "batch_hashes": ("a", "a", "c", "d"),
    "dropout": (0.1,),
    "training": (True, True, False, True),
    "trainable": (6, 6, 6, 5),
}


def changed(name: str, value: object) -> Invariants:
    fields = {it: getattr(SEEN, it) for it in SEEN.__struct_fields__}
    return Invariants(**{**fields, name: value})


def test_every_invariant_has_a_case() -> None:
    assert set(CHANGED) == NAMES


def test_equal_invariants_pass() -> None:
    got = compare_invariants(SEEN, SEEN, allowed=frozenset())
    assert got.passed is True
    assert got.gate == "G0"


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_changed_invariant_fails_unless_the_lever_says_so(name: str) -> None:
    other = changed(name, CHANGED[name])
    assert compare_invariants(SEEN, other, allowed=frozenset()).passed is False
    assert compare_invariants(other, SEEN, allowed=frozenset()).passed is False
    assert compare_invariants(SEEN, other, allowed=frozenset({name})).passed is True


def test_the_sentence_names_step_and_values() -> None:
    got = compare_invariants(SEEN, changed("learning_rates", CHANGED["learning_rates"]), allowed=frozenset())
    assert got.text == "At step 4 the learning rate is (0.105, 0.01) instead of (0.1, 0.01)."
    got = compare_invariants(SEEN, changed("training", CHANGED["training"]), allowed=frozenset())
    assert got.text == "At step 3 the training mode is False instead of True."


def test_rates_kept_as_float32_still_agree() -> None:
    rounded = tuple(tuple(float(np.float32(it)) for it in row) for row in SEEN.learning_rates)
    assert compare_invariants(SEEN, changed("learning_rates", rounded), allowed=frozenset()).passed is True


def test_a_shorter_run_is_compared_as_far_as_it_goes() -> None:
    shorter = Invariants(
        **{
            it: getattr(SEEN, it)[:2] if it not in ("dropout", "other_hyperparameters") else getattr(SEEN, it)
            for it in SEEN.__struct_fields__
        }
    )
    assert compare_invariants(SEEN, shorter, allowed=frozenset()).passed is True


@pytest.mark.parametrize("name", sorted(NAMES - {"clip_values", "dropout"}))
def test_what_only_one_run_shows_leaves_the_gate_open(name: str) -> None:
    got = compare_invariants(SEEN, changed(name, ()), allowed=frozenset())
    assert got.passed is None
    assert "only one run" in got.text


@pytest.mark.parametrize("name", ["clip_values", "dropout"])
def test_lost_clipping_and_lost_dropout_are_differences(name: str) -> None:
    assert compare_invariants(SEEN, changed(name, ()), allowed=frozenset()).passed is False
    assert compare_invariants(changed(name, ()), SEEN, allowed=frozenset()).passed is False


def test_clipping_that_stops_midway_is_a_difference() -> None:
    got = compare_invariants(SEEN, changed("clip_values", (1.0, 1.0)), allowed=frozenset())
    assert got.passed is False


def test_nothing_seen_is_not_a_pass() -> None:
    assert compare_invariants(Invariants(), Invariants(), allowed=frozenset()).passed is None


def test_unknown_hashes_are_not_compared() -> None:
    other = changed("batch_hashes", ("", "b", "c", ""))
    assert compare_invariants(SEEN, other, allowed=frozenset()).passed is True


def test_an_unknown_permission_is_refused() -> None:
    with pytest.raises(ValueError, match="no invariant named 'momentum'"):
        compare_invariants(SEEN, SEEN, allowed=frozenset({"momentum"}))
