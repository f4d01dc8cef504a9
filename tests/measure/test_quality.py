"""How far outputs differ, and the verdict on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure.quality import (
    Unreadable,
    compared_outputs,
    judge_quality,
    outputs_of,
    random_share,
)
from hotlap.measure.share import share_with_interval
from hotlap.records import OutputQuality, QualityVerdict

_LOGITS = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)


def judged(candidate: Any, *, reference: Any = _LOGITS, level: float = 0.99, drawn: float | None = 0.0) -> Any:
    outputs = compared_outputs({"0/output": reference}, {"0/output": candidate})
    return judge_quality(outputs, level=level, inputs=1, random_weights=drawn, proof="rounding")


def only(candidate: Any, reference: Any = _LOGITS) -> OutputQuality:
    (found,) = compared_outputs({"0/output": reference}, {"0/output": candidate})  # type: ignore[str-unpack]
    assert isinstance(found, OutputQuality)
    return found


def with_value(value: float) -> Any:
    changed = _LOGITS.copy()
    changed[3, 4] = value
    return changed


@pytest.mark.parametrize(
    ("candidate", "drawn", "verdict"),
    [
        (_LOGITS, 0.0, "exact"),
        (_LOGITS, 1.0, "exact"),
        (_LOGITS * 1.001, 0.0, "within"),
        (_LOGITS * 1.001, None, "within"),
        (_LOGITS * 1.001, 1.0, "not-verified"),
        (_LOGITS * 1.001, 0.1, "not-verified"),
        (-_LOGITS, 0.0, "lost"),
        (np.zeros_like(_LOGITS), 0.0, "lost"),
        (with_value(float("nan")), 0.0, "lost"),
        (with_value(float("inf")), 1.0, "lost"),
        (_LOGITS[:, :5], 0.0, "lost"),
    ],
)
def test_verdicts(candidate: Any, drawn: float | None, verdict: QualityVerdict) -> None:
    assert judged(candidate, drawn=drawn).verdict == verdict


@given(noise=st.floats(0, 10), seed=st.integers(0, 2**16))
def test_figures_stay_in_their_ranges(noise: float, seed: int) -> None:
    found = only(_LOGITS + noise * np.random.default_rng(seed).normal(size=_LOGITS.shape))
    assert found.finite and found.relative_error >= 0 and -1 <= found.cosine <= 1
    assert found.worst_relative_error >= found.relative_error - 1e-12
    assert found.agreement is not None and found.decisions == 64
    assert 0 <= found.agreement.low <= found.agreement.value <= found.agreement.high <= 1


def test_nan_never_passes_even_where_the_model_has_it_too() -> None:
    assert judged(with_value(float("nan")), reference=with_value(float("nan")), level=0.01).verdict == "lost"


def test_a_mask_of_infinities_that_both_have_is_no_difference() -> None:
    reference, candidate = with_value(-float("inf")), with_value(-float("inf")) * 1.001
    assert judged(candidate, reference=reference).verdict == "within"


def test_neighbours_of_unit_vectors_are_compared() -> None:
    unit = _LOGITS / np.linalg.norm(_LOGITS, axis=1, keepdims=True)
    assert only(unit, unit).agreement == share_with_interval(64, 64)
    other = np.random.default_rng(1).permutation(unit)
    found = only(other, unit)
    assert found.agreement is not None and found.agreement.value < 0.5


def test_another_set_of_outputs_is_lost_with_a_sentence() -> None:
    outputs = compared_outputs({"0/output.logits": _LOGITS}, {"0/output": _LOGITS})
    found = judge_quality(outputs, level=0.5, inputs=1, random_weights=0.0, proof="exact")
    assert (found.verdict, found.text) == ("lost", "It returns output instead of output.logits.")


def test_weights_that_a_seed_changes_were_drawn() -> None:
    one = {"weights": np.array([[1, 30], [2, 10]])}
    assert random_share(one, one) == 0
    assert random_share(one, {"weights": np.array([[5, 30], [2, 10]])}) == 0.75
    assert random_share(one, {"weights": np.array([[5, 30]])}) is None
    assert random_share({}, one) is None


def test_a_share_of_all_is_not_certain() -> None:
    found = share_with_interval(20, 20)
    assert found.value == 1 == found.high and 0.8 < found.low < 0.9


def test_what_is_not_an_archive_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "outputs.npz").write_bytes(b"no archive")
    with pytest.raises(Unreadable):
        outputs_of(str(tmp_path / "outputs.npz"))
