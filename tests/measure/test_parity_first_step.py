"""Gate G2 alone: what passes it, what does not, and what is inconclusive."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from hotlap.measure.parity.first_step import first_step
from hotlap.measure.parity.verdict import ParityEvidence, judge
from hotlap.records import (
    ModelFacts,
    Run,
    ScriptFacts,
    Steps,
)

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
    arrays: dict[str, Any] = {f"gradient/{name}": it for name, it in gradients.items()}
    np.savez(path, loss=np.float64(loss), **arrays)
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


LINEAR = ModelFacts(kind="Net", parameters=1, linears=1)
CONVOLUTIONS = ModelFacts(kind="Net", parameters=1, convolutions=1)
IN_FLOAT64 = msgspec.structs.replace(CONVOLUTIONS, dtype="float64")


def test_where_tf32_is_allowed_its_rounding_is(triple: Triple) -> None:
    """The library chooses by the layout of the operands: the baseline may have been computed in float32 throughout."""
    exact = single(disturbed(triple.true, 1e-5))
    facts = ScriptFacts(device="cuda", cudnn_tf32=True, models=(CONVOLUTIONS,))
    baseline = captured(triple.folder / "tf32.npz", exact, facts=facts)
    forbidden = captured(triple.folder / "float32.npz", exact, facts=msgspec.structs.replace(facts, cudnn_tf32=False))
    for error, passes in ((4e-4, True), (2e-2, False)):
        candidate = triple.candidate(disturbed(triple.true, error, seed=2))
        judged = first_step(baseline, candidate, changes_precision=False, reference=triple.reference)
        assert judged.passed is passes, judged.text
        strictly = first_step(forbidden, candidate, changes_precision=False, reference=triple.reference)
        assert strictly.passed is False


@pytest.mark.parametrize(
    ("facts", "allows"),
    [
        (ScriptFacts(device="cuda", cudnn_tf32=True, models=(LINEAR,)), False),
        (ScriptFacts(device="cuda", cudnn_tf32=True, models=(CONVOLUTIONS,)), True),
        (ScriptFacts(device="cuda", cudnn_tf32=True, models=(ModelFacts(kind="N", parameters=1, recurrent=1),)), True),
        (ScriptFacts(device="cuda", models=(CONVOLUTIONS,)), False),
        (ScriptFacts(device="cuda", matmul_precision="high", models=(LINEAR,)), True),
        (ScriptFacts(device="cuda", cudnn_tf32=True, matmul_precision="high", models=(IN_FLOAT64,)), False),
        (ScriptFacts(device="cuda", cudnn_tf32=True, models=(IN_FLOAT64, LINEAR)), False),
        (ScriptFacts(device="cpu", matmul_precision="high", models=(LINEAR,)), False),
    ],
)
def test_tf32_counts_where_something_is_computed_in_it(facts: ScriptFacts, allows: bool) -> None:
    assert facts.allows_tf32 is allows


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
    pickled: dict[str, Any] = {"gradient/0.weight": np.array([Trap()] * 300, dtype=object)}
    ones: dict[str, Any] = {"gradient/0.weight": np.ones(300)}
    np.savez(tmp_path / "pickled.npz", loss=np.float64(1.0), **pickled)
    np.savez(tmp_path / "words.npz", loss=np.array("two"), **ones)
    np.savez(tmp_path / "lossless.npz", **ones)
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
    assert "too far to judge its direction" in got.text


# -- jumps: an activation within rounding of a threshold falls on its other side --------------


def jumped(triple: Triple, name: str, share: float, seed: int) -> Tensors:
    """Gradients with usual rounding, of which one row of a tensor has gained that share of the tensor's norm."""
    gradients = disturbed(triple.true, 1e-5, seed=seed)
    gradients[name] = gradients[name].copy()
    gradients[name][0] += share * np.linalg.norm(gradients[name]) / np.sqrt(gradients[name][0].size)
    return gradients


def nudged(triple: Triple, gradients: Tensors, name: str = "nudged") -> Run:
    return captured(triple.folder / f"{name}.npz", single(gradients), loss=2.0 + 1e-7)


def test_a_jump_is_no_fault_where_rounding_alone_makes_one_too(triple: Triple) -> None:
    candidate = triple.candidate(jumped(triple, "0.output.weight", 0.02, seed=2))
    quiet = nudged(triple, disturbed(triple.true, 1e-5, seed=3), "quiet")
    jumping = nudged(triple, jumped(triple, "0.embedding.weight", 0.004, seed=4))
    compare = partial(first_step, triple.baseline, candidate, changes_precision=False, reference=triple.reference)
    assert compare().passed is False and compare(nudged=(quiet,)).passed is False
    got = compare(nudged=(quiet, jumping))
    assert got.passed is True and "0.output.weight" in got.text and "in their last place" in got.text, got.text
    assert got.found is not None and got.limit is not None and got.found > got.limit
    assert compare(amplifies=True).passed is True, "the losses show that rounding is amplified"


@pytest.mark.parametrize(
    "broken",
    [
        lambda gradients: gradients["0.output.weight"].__imul__(1.2),
        lambda gradients: gradients["0.embedding.weight"].__setitem__(0, 0.0),
        lambda gradients: gradients["0.attention.key.bias"].__iadd__(0.1),
    ],
    ids=["a tensor scaled", "a row lost", "noise that has become a gradient"],
)
def test_a_fault_is_no_jump(triple: Triple, broken: Callable[[Tensors], object]) -> None:
    gradients = disturbed(triple.true, 1e-5, seed=2)
    broken(gradients)
    jumping = nudged(triple, jumped(triple, "0.embedding.weight", 0.004, seed=4))
    got = first_step(
        triple.baseline,
        triple.candidate(gradients),
        changes_precision=False,
        reference=triple.reference,
        nudged=(jumping,),
        amplifies=True,
    )
    assert got.passed is False, got.text


def test_a_loss_does_not_jump(triple: Triple) -> None:
    candidate = triple.candidate(jumped(triple, "0.output.weight", 0.02, seed=2), loss=2.001)
    jumping = nudged(triple, jumped(triple, "0.embedding.weight", 0.004, seed=4))
    got = first_step(triple.baseline, candidate, changes_precision=False, reference=triple.reference, nudged=(jumping,))
    assert got.passed is False


def test_nudged_weights_without_gradients_that_can_be_read_explain_nothing(triple: Triple) -> None:
    candidate = triple.candidate(jumped(triple, "0.output.weight", 0.02, seed=2))
    broken = triple.folder / "broken.npz"
    broken.write_bytes(b"no archive")
    other = {"0.output.weight": triple.true["0.output.weight"]}
    for run in (Run(), Run(gradients_path=str(broken)), nudged(triple, other)):
        got = first_step(triple.baseline, candidate, changes_precision=False, reference=triple.reference, nudged=(run,))
        assert got.passed is False, got.text


@pytest.mark.parametrize("moved", [1.01, 1.1])
def test_a_jump_is_no_fault_where_rounding_moves_the_losses_and_the_lever_does_not(
    triple: Triple, moved: float
) -> None:
    """Also where rounding moves them so far that no wider limit has a meaning."""

    def with_losses(run: Run, factor: float = 1.0) -> Run:
        return msgspec.structs.replace(run, steps=Steps(loss=(2.0 * factor,) * 30))

    quiet = nudged(triple, disturbed(triple.true, 1e-5, seed=3), "quiet")
    evidence = ParityEvidence(
        baseline=with_losses(triple.baseline),
        baseline_again=with_losses(triple.baseline),
        candidate=with_losses(triple.candidate(jumped(triple, "0.output.weight", 0.02, seed=2))),
        proof="rounding",
        reference=triple.reference,
        nudged=(with_losses(quiet, moved),),
    )
    assert passed(evidence)["G2"] is True and passed(evidence)["G3"] is True
    assert passed(replace(evidence, nudged=(with_losses(quiet),)))["G2"] is False


def passed(evidence: ParityEvidence) -> dict[str, bool | None]:
    return {it.gate: it.passed for it in judge(evidence).gates}
