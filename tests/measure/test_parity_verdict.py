"""From evidence to a verdict and a sentence, on trajectories that are made up."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure.parity.verdict import ParityEvidence, judge, needs_more_nudges, needs_more_runs
from hotlap.records import GateResult, Invariants, Parity, Proof, Run, Steps

SEEN = Invariants(
    learning_rates=((0.1,),) * 300, weight_decays=((0.01,),) * 300, samples=(32,) * 300, training=(True,) * 300
)
DECAY_LOST = Invariants(
    learning_rates=((0.1,),) * 300, weight_decays=((0.0,),) * 300, samples=(32,) * 300, training=(True,) * 300
)


def curve(steps: int = 300, *, factor: float = 1.0, bend: float = 0.0, seed: int = 0) -> list[float | None]:
    """A falling loss; ``bend`` makes it drift away slowly, as a wrong update does."""
    source = random.Random(seed)
    return [factor * (1 + 3 * math.exp(-t / 80) + source.gauss(0, 0.05)) * (1 + bend * t / 300) for t in range(steps)]


def run(losses: list[float | None], *, invariants: Invariants = SEEN) -> Run:
    bad = tuple(row for row, loss in enumerate(losses) if loss is not None and not math.isfinite(loss))
    readable = tuple(None if row in bad else loss for row, loss in enumerate(losses))
    return Run(steps=Steps(loss=readable, not_finite=bad), invariants=invariants)


def verdict(
    candidate: Run, *, proof: Proof = "rounding", baseline: Run | None = None, again: Run | None = None, **more: object
) -> Parity:
    own = baseline or run(curve())
    return judge(
        ParityEvidence(baseline=own, baseline_again=again or own, candidate=candidate, proof=proof, **more)  # type: ignore[arg-type]
    )


def test_equal_losses_of_an_exact_lever_are_exact() -> None:
    got = verdict(run(curve()), proof="exact")
    assert (got.verdict, got.steps, got.proof) == ("exact", 300, "exact")
    assert got.text == "The losses of 300 steps are identical to the last bit."
    assert [gate.gate for gate in got.gates] == ["G0", "G1", "G3"]


def test_an_exact_lever_that_rounds_is_lost() -> None:
    assert verdict(run(curve(factor=1 + 1e-12)), proof="exact").verdict == "lost"


def test_an_exact_lever_on_a_script_that_varies_by_itself_is_within() -> None:
    again = run(curve(factor=1 + 1e-6))
    got = verdict(run(curve(factor=1 - 1e-6)), proof="exact", again=again)
    assert got.verdict == "within"
    assert "identical" not in got.text
    assert verdict(run(curve(factor=1.001)), proof="exact", again=again).verdict == "lost"


def test_rounding_is_within_and_never_identical() -> None:
    got = verdict(run(curve(factor=1.0003)))
    assert got.verdict == "within"
    assert got.text == "No difference found within 0.1 % over 300 steps (largest: 0.03 %)."
    same = verdict(run(curve()))
    assert same.verdict == "within"
    assert "identical" not in same.text


def test_a_slow_drift_is_lost() -> None:
    got = verdict(run(curve(bend=0.006)))
    assert got.verdict == "lost"
    assert got.text.startswith("Training no longer produces the same results: the losses of 300 steps differ by 0.5")


def test_a_lost_weight_decay_is_caught_by_its_invariant() -> None:
    healthy_losses = curve(factor=1.0005)
    assert verdict(run(healthy_losses)).verdict == "within"
    got = verdict(run(healthy_losses, invariants=DECAY_LOST))
    assert got.verdict == "lost"
    assert "weight decay is 0 instead of 0.01" in got.text
    assert verdict(run(healthy_losses, invariants=DECAY_LOST), allowed=frozenset({"weight_decays"})).verdict == "within"


def test_a_short_comparison_says_so() -> None:
    got = verdict(run(curve(120)))
    assert (got.verdict, got.steps) == ("within", 120)
    assert "300 are recommended" in got.text


@pytest.mark.parametrize("proof", ["exact", "rounding"])
def test_a_loss_that_was_never_read_is_not_verified(proof: Proof) -> None:
    unread = run([None] * 300)
    for baseline, candidate in ((run(curve()), unread), (unread, run(curve())), (unread, unread)):
        got = verdict(candidate, proof=proof, baseline=baseline)
        assert got.verdict == "not-verified"
        assert got.text.startswith("Not verified: ")


@pytest.mark.parametrize("proof", ["exact", "rounding"])
@given(row=st.integers(0, 299), value=st.sampled_from([None, math.nan, math.inf, -math.inf]))
def test_one_missing_loss_is_enough_to_be_lost(proof: Proof, row: int, value: float | None) -> None:
    losses = curve()
    losses[row] = value
    assert verdict(run(losses), proof=proof).verdict == "lost"


@pytest.mark.parametrize("proof", ["exact", "rounding"])
@given(steps=st.integers(0, 19))
def test_too_few_steps_are_never_a_pass(proof: Proof, steps: int) -> None:
    assert verdict(run(curve(steps)), proof=proof).verdict == "not-verified"


def test_an_unrepeatable_script_is_not_verified() -> None:
    got = verdict(run(curve(factor=1.01)), again=run(curve(factor=1.02)))
    assert got.verdict == "not-verified"
    assert "two runs of the baseline" in got.text
    assert verdict(run(curve(factor=1.3)), again=run(curve(factor=1.02))).verdict == "lost"


def test_invariants_that_were_not_observed_are_not_verified() -> None:
    blind = run(curve(), invariants=Invariants())
    assert verdict(blind, baseline=blind).verdict == "not-verified"
    assert verdict(blind, baseline=blind, proof="exact").verdict == "not-verified"


def test_both_bands_widen_the_limit() -> None:
    candidate = run(curve(factor=1.002))
    assert verdict(candidate).verdict == "lost"
    assert verdict(candidate, nudged=(run(curve(factor=1.001)),)).verdict == "within"
    assert verdict(candidate, reseeded=run(curve(factor=1.001))).verdict == "within"


def seeded(factor: float) -> tuple[tuple[Run, Run], ...]:
    return tuple(
        (
            run(curve(seed=seed, factor=1 + seed / 50)),
            run(curve(seed=seed, factor=factor * (1 + seed / 50))),
        )
        for seed in range(4)
    )


def test_what_changes_the_behaviour_is_judged_by_seeds() -> None:
    elsewhere = run(curve(bend=0.3))
    assert verdict(elsewhere, proof="behaviour").verdict == "not-verified"
    got = verdict(elsewhere, proof="behaviour", seeds=seeded(1.0001))
    assert got.verdict == "within"
    assert "identical" not in got.text
    assert verdict(elsewhere, proof="behaviour", seeds=seeded(1.4)).verdict == "lost"


@given(st.floats(0.5, 2.0), st.floats(-0.5, 0.5))
def test_a_verdict_always_has_a_sentence_and_json(factor: float, bend: float) -> None:
    import msgspec

    got = verdict(run(curve(factor=factor, bend=bend)))
    assert got.text.endswith(".")
    assert msgspec.json.decode(msgspec.json.encode(got), type=Parity) == got
    assert (got.verdict == "within") == all(gate.passed is not False for gate in got.gates)


@pytest.mark.parametrize(
    ("gate", "asks"),
    [
        (GateResult(gate="G2", passed=False, found=319.0, limit=2.0, text="Its error is too large."), True),
        (GateResult(gate="G2", passed=False, found=0.4, limit=0.99, text="It turns."), False),
        (GateResult(gate="G2", passed=False, text="It is not finite."), False),
        (GateResult(gate="G3", passed=False, found=0.02, limit=0.001, text="Losses differ."), True),
        (GateResult(gate="G0", passed=False, text="The learning rate differs."), False),
    ],
    ids=["too large an error", "another direction", "not finite", "losses", "an invariant"],
)
def test_only_what_is_too_large_may_be_explained_by_further_nudges(gate: GateResult, asks: bool) -> None:
    others = tuple(GateResult(gate=it, passed=True) for it in ("G0", "G1", "G2", "G3") if it != gate.gate)  # type: ignore[arg-type]
    parity = Parity(verdict="lost", proof="rounding", steps=50, gates=(*others, gate), text="Lost.")
    assert needs_more_nudges(parity) is asks
    assert needs_more_runs(parity) is asks
