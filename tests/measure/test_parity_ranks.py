"""The gates over all ranks: a fault of one process alone is found, and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from hotlap.measure.parity.verdict import ParityEvidence, judge, judge_exact
from hotlap.records import Completed, Invariants, Proof, Run, Steps

SEEN = Invariants(learning_rates=((0.1,),), samples=(8,))


def falling(start: float) -> tuple[float, ...]:
    return tuple(start * 0.99**step for step in range(60))


def run(*ranks: tuple[float | None, ...], gradients: tuple[str, ...] = ()) -> Run:
    return Run(
        ending=Completed(),
        steps=Steps(loss=ranks[0], wall_seconds=(0.1,) * len(ranks[0])),
        invariants=SEEN,
        rank_losses=ranks,
        rank_gradients_paths=gradients,
    )


def verdict(baseline: Run, candidate: Run, proof: Proof = "exact") -> tuple[str, str]:
    found = judge(ParityEvidence(baseline=baseline, baseline_again=baseline, candidate=candidate, proof=proof))
    return found.verdict, found.text


FIRST, SECOND = falling(2.0), falling(3.0)
BASELINE = run(FIRST, SECOND)


def test_equal_losses_on_all_ranks_are_exact() -> None:
    found = judge_exact([(BASELINE, BASELINE, BASELINE)])
    assert found.verdict == "exact"
    assert "on each of 2 ranks" in found.text


@pytest.mark.parametrize("proof", ["exact", "rounding"])
def test_another_loss_on_the_second_rank_alone_is_lost(proof: Proof) -> None:
    other = run(FIRST, tuple(it * 1.01 for it in SECOND))
    name, text = verdict(BASELINE, other, proof)
    assert name == "lost"
    assert "on rank 1" in text.lower()


def test_rounding_on_the_second_rank_is_within() -> None:
    assert verdict(BASELINE, run(FIRST, tuple(it * 1.0001 for it in SECOND)), "rounding")[0] == "within"


def test_a_loss_that_the_second_rank_could_not_read_is_lost() -> None:
    name, text = verdict(BASELINE, run(FIRST, (*SECOND[:30], None, *SECOND[31:])))
    assert name == "lost" and "step 31" in text


def test_one_process_and_older_studies_are_judged_by_their_only_losses() -> None:
    alone = msgspec.structs.replace(BASELINE, rank_losses=())
    name, text = verdict(alone, BASELINE)
    assert name == "exact" and "ranks" not in text


def gradients(folder: Path, *values: float) -> tuple[str, ...]:
    folder.mkdir()
    paths = []
    for rank, value in enumerate(values):
        path = folder / f"gradients-{rank}.npz"
        arrays: dict[str, Any] = {"loss": np.float64(1.0), "gradient/0.weight": np.full(4, value)}
        np.savez(path, **arrays)
        paths.append(str(path))
    return tuple(paths)


def test_gradients_that_are_no_longer_the_same_on_all_ranks_are_lost(tmp_path: Path) -> None:
    same, other = gradients(tmp_path / "same", 1.0, 1.0), gradients(tmp_path / "other", 1.0, 1.5)
    baseline, candidate = run(FIRST, SECOND, gradients=same), run(FIRST, SECOND, gradients=other)
    name, text = verdict(baseline, candidate, "rounding")
    assert name == "lost" and "0.weight" in text and "2 ranks" in text
    assert verdict(baseline, baseline, "rounding")[0] == "within"
    assert verdict(candidate, candidate, "rounding")[0] == "within", "ranks that never exchange gradients"


def test_files_of_gradients_that_cannot_be_read_prove_nothing(tmp_path: Path) -> None:
    same = gradients(tmp_path / "same", 1.0, 1.0)
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"nothing")
    candidate = run(FIRST, SECOND, gradients=(same[0], str(broken)))
    assert verdict(run(FIRST, SECOND, gradients=same), candidate, "rounding")[0] == "within"
