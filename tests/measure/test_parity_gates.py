"""Every gate alone: what passes it, what does not, and what leaves it open."""

from __future__ import annotations

import math
import random
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure.parity.first_step import first_step
from hotlap.measure.parity.invariants import NAMES, compare_invariants
from hotlap.measure.parity.learning import equivalence, learning
from hotlap.measure.parity.losses import difference, distance, moving_average, pair
from hotlap.measure.parity.repeatability import repeatability
from hotlap.measure.parity.trajectory import exact_trajectory, trajectory
from hotlap.records import (
    Completed,
    Crashed,
    Ending,
    Invariants,
    ModelFacts,
    Run,
    ScriptFacts,
    Steps,
    Stopped,
)


def run(losses: list[float | None], *, ending: Ending | None = None, **changes: object) -> Run:
    bad = tuple(row for row, loss in enumerate(losses) if loss is not None and not math.isfinite(loss))
    readable = tuple(None if row in bad else loss for row, loss in enumerate(losses))
    return Run(steps=Steps(loss=readable, not_finite=bad), ending=ending or Stopped(), **changes)  # type: ignore[arg-type]


def curve(steps: int = 300, *, seed: int = 0, factor: float = 1.0, noise: float = 0.05) -> list[float | None]:
    """A falling loss with the noise of its batches."""
    source = random.Random(seed)
    return [factor * (1 + 3 * math.exp(-t / 80) + source.gauss(0, noise)) for t in range(steps)]


# -- G0 -------------------------------------------------------------------------------------------

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
    assert "one run only" in got.text


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


# -- The distance between two trajectories --------------------------------------------------------

losses = st.lists(st.floats(0.1, 10), min_size=1, max_size=50)


def test_the_moving_average_by_hand() -> None:
    assert moving_average([1.0, 2.0, 2.0]) == pytest.approx([1.0, 1.1, 1.19])


@given(losses)
def test_a_run_is_at_no_distance_from_itself(values: list[float]) -> None:
    assert distance(pair(run(list(values)), run(list(values)))) == 0


@given(st.lists(st.floats(1, 10), min_size=1, max_size=50), st.floats(1.0, 2.0))
def test_the_distance_is_relative(values: list[float], factor: float) -> None:
    got = distance(pair(run(list(values)), run([it * factor for it in values])))
    assert got == pytest.approx(factor - 1, abs=1e-9)


@given(losses, losses, st.floats(0.01, 100))
def test_the_scale_of_a_loss_does_not_matter(one: list[float], other: list[float], factor: float) -> None:
    plain = distance(pair(run(list(one)), run(list(other))))
    scaled = distance(pair(run([it * factor for it in one]), run([it * factor for it in other])))
    assert scaled == pytest.approx(plain, rel=1e-6, abs=1e-12)


@given(losses, losses)
def test_the_sign_of_a_loss_does_not_matter(one: list[float], other: list[float]) -> None:
    plain = distance(pair(run(list(one)), run(list(other))))
    assert distance(pair(run([-it for it in one]), run([-it for it in other]))) == pytest.approx(plain)


def test_rounding_in_a_loss_that_crosses_zero_is_no_finding() -> None:
    crossing: list[float | None] = [math.cos(t / 30) for t in range(300)]
    rounded = [it + 1e-6 for it in crossing if it is not None]
    assert (difference(run(crossing), run([*rounded])) or 0) < 1e-5


def test_a_change_in_a_loss_that_crosses_zero_is_found() -> None:
    crossing = [math.cos(t / 30) for t in range(300)]
    assert (difference(run([*crossing]), run([it * 1.01 for it in crossing])) or 0) > 0.005


def test_rounding_in_a_loss_that_vanishes_is_no_finding() -> None:
    vanishing = [math.exp(-t / 10) for t in range(300)]
    assert (difference(run([*vanishing]), run([it + 1e-7 for it in vanishing])) or 0) < 0.001


def test_losses_of_zero_have_no_finite_distance_to_others() -> None:
    assert distance(pair(run([0.0] * 30), run([0.0] * 30))) == 0
    assert distance(pair(run([0.0] * 30), run([1.0] * 30))) is None


# -- G1 -------------------------------------------------------------------------------------------


def test_a_repeatable_script_passes() -> None:
    got = repeatability(run(curve()), run(curve()))
    assert (got.passed, got.found) == (True, 0.0)
    got = repeatability(run(curve()), run(curve(factor=1.001)))
    assert got.passed is True
    assert got.found == pytest.approx(0.001)


def test_an_unrepeatable_script_does_not() -> None:
    assert repeatability(run(curve()), run(curve(factor=1.05))).passed is False


@pytest.mark.parametrize("again", [[], [None] * 300, curve(10), [*curve(100), math.nan, *curve(100)]])
def test_what_cannot_be_repeated_stays_open(again: list[float | None]) -> None:
    assert repeatability(run(curve()), run(again)).passed is None


# -- G2 -------------------------------------------------------------------------------------------

Tensors = dict[str, np.ndarray]


def tensors(seed: int = 0) -> Tensors:
    source = np.random.default_rng(seed)
    return {
        "0.embedding.weight": source.normal(size=(50, 20)),
        "0.attention.key.bias": source.normal(size=20) * 1e-9,
        "0.output.weight": source.normal(size=(20, 20)),
        "0.output.bias": source.normal(size=3),
    }


def captured(path: Path, gradients: Tensors, *, loss: float = 2.0, **changes: object) -> Run:
    np.savez(path, loss=np.float64(loss), **{f"gradient/{name}": it for name, it in gradients.items()})
    return Run(gradients_path=str(path), **changes)  # type: ignore[arg-type]


def disturbed(gradients: Tensors, error: float, seed: int = 1) -> Tensors:
    """Each tensor with an error relative to its own norm, as rounding makes it."""
    source = np.random.default_rng(seed)
    return {name: it * (1 + source.normal(size=it.shape) * error) for name, it in gradients.items()}


def single(gradients: Tensors) -> Tensors:
    return {name: it.astype(np.float32) for name, it in gradients.items()}


class Triple:
    """Baseline, candidate and reference files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.true = tensors()
        self.reference = captured(folder / "reference.npz", self.true)
        self.baseline = captured(folder / "baseline.npz", single(disturbed(self.true, 1e-5)), loss=2.0 + 1e-7)

    def candidate(self, gradients: Tensors, *, loss: float = 2.0 + 1e-7) -> Run:
        return captured(self.folder / "candidate.npz", single(gradients), loss=loss)


@pytest.fixture
def triple(tmp_path: Path) -> Triple:
    return Triple(tmp_path)


def test_as_good_a_rounding_passes(triple: Triple) -> None:
    candidate = triple.candidate(disturbed(triple.true, 1.3e-5, seed=2))
    got = first_step(triple.baseline, candidate, changes_precision=False, reference=triple.reference)
    assert got.passed is True, got.text
    assert got.found is not None
    assert 1 < got.found < 3


@pytest.mark.parametrize("name", ["0.embedding.weight", "0.output.weight", "0.output.bias"])
def test_a_worse_rounding_of_one_tensor_fails(triple: Triple, name: str) -> None:
    gradients = disturbed(triple.true, 1e-5, seed=2)
    gradients[name] = disturbed(triple.true, 5e-4, seed=3)[name]
    got = first_step(triple.baseline, triple.candidate(gradients), changes_precision=False, reference=triple.reference)
    assert got.passed is False
    assert name in got.text


def test_a_worse_loss_fails(triple: Triple) -> None:
    candidate = triple.candidate(disturbed(triple.true, 1e-6), loss=2.0001)
    got = first_step(triple.baseline, candidate, changes_precision=False, reference=triple.reference)
    assert got.passed is False
    assert "the loss" in got.text


def test_half_precision_gets_the_wider_rule(triple: Triple) -> None:
    gradients = disturbed(triple.true, 2.5e-3, seed=2)
    gradients["0.output.bias"] = triple.true["0.output.bias"]
    candidate = triple.candidate(gradients)
    coarse = disturbed(triple.true, 1e-3)
    as_float = captured(triple.folder / "float.npz", single(coarse))
    facts = ScriptFacts(models=(ModelFacts(kind="Net", parameters=1, dtype="bfloat16"),))
    as_half = captured(triple.folder / "half.npz", single(coarse), facts=facts)
    assert first_step(as_float, candidate, changes_precision=False, reference=triple.reference).passed is False
    assert first_step(as_half, candidate, changes_precision=False, reference=triple.reference).passed is True


def test_a_baseline_exact_by_luck_does_not_fail_a_healthy_candidate(triple: Triple) -> None:
    lucky = single(disturbed(triple.true, 1e-7))
    lucky["0.output.bias"] = triple.true["0.output.bias"]
    baseline = captured(triple.folder / "lucky.npz", lucky)
    candidate = triple.candidate(disturbed(triple.true, 1.2e-7, seed=2))
    assert first_step(baseline, candidate, changes_precision=False, reference=triple.reference).passed is True


def test_a_lower_precision_passes_by_its_direction(triple: Triple) -> None:
    gradients = disturbed(triple.true, 4e-3, seed=2)
    gradients["0.attention.key.bias"] = np.random.default_rng(5).normal(size=20) * 1e-5
    got = first_step(triple.baseline, triple.candidate(gradients, loss=2.001), changes_precision=True)
    assert got.passed is True, got.text
    assert got.found is not None
    assert got.found > 0.999


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("0.output.weight", math.nan, "not finite"),
        ("0.output.weight", math.inf, "not finite"),
        ("0.output.bias", 0.0, "0.output.bias turns"),
        ("0.attention.key.bias", 1.0, "no longer is"),
        ("0.embedding.weight", 0.0, "first step turns"),
    ],
)
def test_a_lost_tensor_fails(triple: Triple, name: str, value: float, words: str) -> None:
    gradients = disturbed(triple.true, 1e-3)
    gradients[name] = np.full_like(gradients[name], value)
    got = first_step(triple.baseline, triple.candidate(gradients), changes_precision=True)
    assert got.passed is False
    assert words in got.text


@pytest.mark.parametrize("loss", [2.01, math.nan, math.inf])
def test_a_lost_first_loss_fails(triple: Triple, loss: float) -> None:
    got = first_step(triple.baseline, triple.candidate(triple.true, loss=loss), changes_precision=True)
    assert got.passed is False


def test_a_tensor_turned_around_fails(triple: Triple) -> None:
    gradients = dict(triple.true)
    gradients["0.output.bias"] = -gradients["0.output.bias"]
    got = first_step(triple.baseline, triple.candidate(gradients), changes_precision=True)
    assert got.passed is False


def test_gradients_that_are_all_zero_agree(tmp_path: Path) -> None:
    zero = {"0.weight": np.zeros(5)}
    one, other = captured(tmp_path / "one.npz", zero), captured(tmp_path / "other.npz", zero)
    assert first_step(one, other, changes_precision=True).passed is True


def test_a_missing_tensor_fails(triple: Triple) -> None:
    gradients = dict(triple.true)
    del gradients["0.output.bias"]
    got = first_step(triple.baseline, triple.candidate(gradients), changes_precision=True)
    assert got.passed is False
    assert "Only the baseline has a gradient for 0.output.bias" in got.text


def test_another_shape_fails(triple: Triple) -> None:
    gradients = {**triple.true, "0.output.bias": np.ones(4)}
    assert first_step(triple.baseline, triple.candidate(gradients), changes_precision=True).passed is False


def test_a_compiled_models_names_are_understood(triple: Triple) -> None:
    gradients = {name.replace("0.", "0._orig_mod.", 1): it for name, it in triple.true.items()}
    assert first_step(triple.baseline, triple.candidate(gradients), changes_precision=True).passed is True


def test_what_was_not_captured_stays_open(triple: Triple) -> None:
    candidate = triple.candidate(triple.true)
    assert first_step(triple.baseline, Run(), changes_precision=True).passed is None
    assert first_step(triple.baseline, candidate, changes_precision=False).passed is None
    assert first_step(triple.baseline, candidate, changes_precision=False, reference=Run()).passed is None


def test_broken_files_stay_open(tmp_path: Path) -> None:
    sound = captured(tmp_path / "sound.npz", {"0.weight": np.ones(300)})

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str, ...]]:
            return Path.touch, (Path(tmp_path / "sprung"),)  # type: ignore[return-value]

    (tmp_path / "text.npz").write_text("no archive")
    np.savez(
        tmp_path / "pickled.npz", loss=np.float64(1.0), **{"gradient/0.weight": np.array([Trap()] * 300, dtype=object)}
    )
    np.savez(tmp_path / "words.npz", loss=np.array("two"), **{"gradient/0.weight": np.ones(300)})
    np.savez(tmp_path / "lossless.npz", **{"gradient/0.weight": np.ones(300)})
    np.savez(tmp_path / "empty.npz", loss=np.float64(1.0))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "sound.npz").read_bytes()[:-200])
    with zipfile.ZipFile(tmp_path / "garbled.npz", "w") as archive:
        archive.writestr("loss.npy", b"\x93NUMPY garbled")
        archive.writestr("gradient/0.weight.npy", b"")
    for name in ("text", "pickled", "words", "lossless", "empty", "cut", "garbled", "missing"):
        broken = Run(gradients_path=str(tmp_path / f"{name}.npz"))
        for one, other in ((sound, broken), (broken, sound), (broken, broken)):
            assert first_step(one, other, changes_precision=True).passed is None, name
    assert not (tmp_path / "sprung").exists()


# -- G3 -------------------------------------------------------------------------------------------


def test_a_small_change_passes_and_a_large_one_fails() -> None:
    baseline = run(curve())
    assert trajectory(baseline, run(curve(factor=1.0009)), again=baseline).passed is True
    got = trajectory(baseline, run(curve(factor=1.0011)), again=baseline)
    assert got.passed is False
    assert got.found == pytest.approx(0.0011)
    assert got.limit == 0.001


@pytest.mark.parametrize("which", ["again", "nudged", "reseeded"])
def test_the_scripts_own_difference_widens_the_limit(which: str) -> None:
    baseline, candidate, shaken = run(curve()), run(curve(factor=1.01)), run(curve(factor=1.004))
    yardsticks = {"again": baseline, which: shaken}
    got = trajectory(baseline, candidate, **yardsticks)
    assert got.passed is True
    assert got.limit == pytest.approx(0.012)
    assert trajectory(baseline, run(curve(factor=1.013)), **yardsticks).passed is False


def test_a_limit_too_wide_to_mean_anything_is_no_pass() -> None:
    baseline, shaken = run(curve()), run(curve(factor=1.1))
    assert trajectory(baseline, run(curve(factor=1.05)), again=baseline, reseeded=shaken).passed is None
    assert trajectory(baseline, run(curve(factor=1.5)), again=baseline, reseeded=shaken).passed is False


def test_exact_means_to_the_last_bit() -> None:
    baseline = run(curve())
    last_bit = [math.nextafter(it, 9) if it is not None else None for it in curve()]
    assert exact_trajectory(baseline, run(curve()), again=baseline).passed is True
    assert exact_trajectory(baseline, run(last_bit), again=baseline).passed is False


def test_exact_allows_what_the_baseline_itself_does() -> None:
    baseline, again = run(curve()), run(curve(factor=1 + 1e-6))
    assert exact_trajectory(baseline, run(curve(factor=1 + 2e-6)), again=again).passed is True
    assert exact_trajectory(baseline, run(curve(factor=1 + 4e-6)), again=again).passed is False


def with_gap(row: int, value: float | None) -> list[float | None]:
    made = curve()
    made[row] = value
    return made


@pytest.mark.parametrize("gate", [trajectory, exact_trajectory])
def test_an_unread_or_unfinite_loss_is_lost(gate: object) -> None:
    baseline = run(curve())
    for value in (None, math.nan, math.inf):
        got = gate(baseline, run(with_gap(77, value)), again=baseline)  # type: ignore[operator]
        assert got.passed is False
        assert "step 78" in got.text


@pytest.mark.parametrize("gate", [trajectory, exact_trajectory])
def test_losses_read_now_and_then_are_enough_when_both_runs_have_them(gate: object) -> None:
    sparse = [loss if row % 10 == 0 else None for row, loss in enumerate(curve())]
    assert gate(run(sparse), run(sparse), again=run(sparse)).passed is True  # type: ignore[operator]
    sparser = [loss if row % 20 == 0 else None for row, loss in enumerate(curve())]
    assert gate(run(sparser), run(sparser), again=run(sparser)).passed is None  # type: ignore[operator]


@pytest.mark.parametrize("gate", [trajectory, exact_trajectory])
@pytest.mark.parametrize("values", [[], [None] * 300, curve(19)])
def test_too_little_to_compare_stays_open(gate: object, values: list[float | None]) -> None:
    for one, other in ((curve(), values), (values, curve()), (values, values)):
        assert gate(run(one), run(other), again=run(one)).passed is None  # type: ignore[operator]


def test_a_script_that_ends_elsewhere_is_lost() -> None:
    long, short = curve(300), curve(300)[:150]
    full, cut = run(long, ending=Completed()), run(short, ending=Completed())
    assert trajectory(full, cut, again=full).passed is False
    assert trajectory(cut, full, again=cut).passed is False
    assert trajectory(full, run(short), again=full).passed is True
    scaled = run(long[:298], ending=Completed(), scaler_skipped_steps=2)
    assert trajectory(full, scaled, again=full).passed is True


def test_a_candidate_that_crashes_is_lost() -> None:
    baseline = run(curve())
    crashed = run(curve()[:50], ending=Crashed(exit_code=1, error="AssertionError: loss is not finite"))
    got = trajectory(baseline, crashed, again=baseline)
    assert got.passed is False
    assert "AssertionError" in got.text


# -- G4 -------------------------------------------------------------------------------------------

SEEDS = [0.90, 0.92, 0.91, 0.93, 0.89]


def test_a_small_paired_change_is_equivalent() -> None:
    got = equivalence(SEEDS, [it + shift for it, shift in zip(SEEDS, (1e-3, -2e-3, 0, 2e-3, -1e-3), strict=True)])
    assert got.passed is True
    assert got.limit == pytest.approx(0.0158, abs=1e-4)


def test_a_large_change_is_not() -> None:
    assert equivalence(SEEDS, [it + 0.05 for it in SEEDS]).passed is False
    assert equivalence(SEEDS, [it - 0.05 for it in SEEDS]).passed is False


def test_a_change_that_might_be_either_stays_open() -> None:
    shifts = (0.03, -0.03, 0.04, -0.02, 0.05)
    assert equivalence(SEEDS, [it + shift for it, shift in zip(SEEDS, shifts, strict=True)]).passed is None


def test_two_seeds_are_too_few() -> None:
    assert equivalence(SEEDS[:2], SEEDS[:2]).passed is None


def test_unpaired_or_unfinite_metrics_are_refused() -> None:
    with pytest.raises(ValueError, match="paired"):
        equivalence(SEEDS, SEEDS[:3])
    with pytest.raises(ValueError, match="not finite"):
        equivalence(SEEDS, [*SEEDS[:4], math.nan])


def test_runs_of_several_seeds() -> None:
    def seeded(factor: float) -> list[tuple[Run, Run]]:
        return [
            (run(curve(seed=seed, factor=1 + seed / 50)), run(curve(seed=seed, factor=factor * (1 + seed / 50))))
            for seed in range(5)
        ]

    assert learning(seeded(1.0001)).passed is True
    assert learning(seeded(1.3)).passed is False
    assert learning([*seeded(1.0001), (run(curve()), run([*curve(299), math.nan]))]).passed is False
    assert learning([*seeded(1.0001), (run(curve()), run([None] * 300))]).passed is None
    assert learning([]).passed is None


# -- G2 where the network itself turns gradients --------------------------------------------------


def turned(gradients: Tensors, angle: float, seed: int = 5) -> Tensors:
    """The whole gradient turned by an angle (radians), its length kept."""
    source = np.random.default_rng(seed)
    result = {}
    for name, it in gradients.items():
        across = source.normal(size=it.shape)
        across -= it * (across * it).sum() / max((it * it).sum(), 1e-300)
        across *= np.linalg.norm(it) / np.linalg.norm(across)
        result[name] = it * np.cos(angle) + across * np.sin(angle)
    return result


def test_a_turn_is_held_against_that_of_rounded_weights(triple: Triple) -> None:
    candidate = triple.candidate(turned(triple.true, 0.37))  # a cosine of 0.93
    alone = first_step(triple.baseline, candidate, changes_precision=True)
    assert alone.passed is False
    rounded = captured(triple.folder / "rounded.npz", single(turned(triple.true, 0.26, seed=6)))
    assert first_step(triple.baseline, candidate, changes_precision=True, rounded=rounded).passed is True
    steady = captured(triple.folder / "steady.npz", single(turned(triple.true, 0.05, seed=6)))
    assert first_step(triple.baseline, candidate, changes_precision=True, rounded=steady).passed is False


def test_a_gradient_without_direction_proves_nothing(triple: Triple) -> None:
    candidate = triple.candidate(turned(triple.true, 1.4))
    rounded = captured(triple.folder / "rounded.npz", single(turned(triple.true, 1.2, seed=6)))
    got = first_step(triple.baseline, candidate, changes_precision=True, rounded=rounded)
    assert got.passed is None
    assert "proves nothing" in got.text
