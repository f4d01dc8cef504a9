"""G5: single steps that started from where the unmodified script's did."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure.parity.single_steps import single_steps
from hotlap.measure.parity.verdict import ParityEvidence, RestoredSteps, judge, needs_single_steps
from hotlap.records import Invariants, Parity, RestoredStep, Run, Steps
from hotlap.render.quality import quality_details, quality_phrase, quality_word

STEPS = 60
ROWS = range(4, STEPS, 5)
LOSSES = tuple(2.0 + math.exp(-step / 20) for step in range(STEPS))


def run(
    losses: tuple[float | None, ...] = LOSSES, *, error: float | None = 0.0, length: float = 1.0, rows: range = ROWS
) -> Run:
    steps = tuple(RestoredStep(step=it, error=error, length_ratio=length) for it in rows)
    invariants = Invariants(samples=(8,) * STEPS, training=(True,) * STEPS)
    return Run(steps=Steps(loss=losses, samples=(8,) * STEPS), invariants=invariants, restored_steps=steps)


def scaled(factor: float) -> tuple[float, ...]:
    return tuple(factor * it for it in LOSSES)


def one_step(**changes: float) -> Run:
    """One of them differs so."""
    whole = run()
    first, *rest = whole.restored_steps
    other = RestoredStep(step=first.step, error=changes["error"], length_ratio=changes.get("length", 1.0))
    return msgspec.structs.replace(whole, restored_steps=(other, *rest))


def passed(candidate: Run, restored: Run | None = None, *, changes_precision: bool = False) -> bool | None:
    found = single_steps(run(), restored or run(), candidate, changes_precision=changes_precision)
    assert found.gate == "G5" and found.passed is not False, "a step that differs is no proof of a fault here"
    return found.passed


def test_the_same_steps_pass() -> None:
    found = single_steps(run(), run(), run(scaled(1.0002), error=2e-4), changes_precision=False)
    assert found.passed is True and found.found == pytest.approx(2e-4, rel=0.1) and found.limit == 0.001
    assert found.text.startswith("12 single steps from the unmodified script's own weights: losses differ by 0.019 %")


@pytest.mark.parametrize(
    ("candidate", "keeps_precision", "changes_precision"),
    [
        (run(scaled(1.002)), None, None),
        (run(error=0.005), None, True),
        (run(error=0.05), None, None),
        (one_step(error=0.04), True, True),
        (one_step(error=0.2), None, True),
        (one_step(error=0.4), None, None),
        (one_step(error=0.0, length=1.2), None, None),
        (run(length=1.005), True, True),
        (run(length=1.05), None, None),
        (run(length=0.95), None, None),
        (run(error=None), None, None),
        (run(rows=range(4, 20, 5)), None, None),
        (run((*LOSSES[:9], None, *LOSSES[10:])), None, None),
        (run((*LOSSES[:9], math.nan, *LOSSES[10:])), None, None),
        (run((*LOSSES[:9], 1.05 * LOSSES[9], *LOSSES[10:])), None, None),
        (run(LOSSES[:30]), None, None),
    ],
)
def test_what_differs_is_not_verified(
    candidate: Run, keeps_precision: bool | None, changes_precision: bool | None
) -> None:
    assert passed(candidate) is keeps_precision
    assert passed(candidate, changes_precision=True) is changes_precision


def test_rounding_to_another_precision_changes_losses_at_random() -> None:
    """Each by half a per cent, up and down."""
    wavering = tuple(it * (1 + 0.005 * (-1) ** (step // 5)) for step, it in enumerate(LOSSES))
    assert passed(run(wavering), changes_precision=True) is True
    assert passed(run(scaled(1.005)), changes_precision=True) is None


@pytest.mark.parametrize("restored", [run(scaled(1.01)), run(error=0.01), run(error=None), run(rows=range(0))])
def test_a_script_that_does_not_come_back_proves_nothing(restored: Run) -> None:
    """Its own steps differ from the same weights: they depend on more."""
    assert passed(run(), restored) is None


@given(st.lists(st.floats(-0.02, 0.02), min_size=len(ROWS), max_size=len(ROWS)), st.floats(0, 0.2), st.floats(0.9, 1.1))
def test_whatever_passes_is_close(errors: list[float], error: float, length: float) -> None:
    by_step = dict(zip(ROWS, errors, strict=True))
    losses = tuple(it * (1 + by_step.get(step, 0.0)) for step, it in enumerate(LOSSES))
    candidate = run(losses, error=error, length=length)
    if passed(candidate, changes_precision=True):
        assert max(map(abs, errors)) <= 0.011 and error <= 0.02 and abs(math.log(length)) <= 0.01
    if passed(candidate):
        assert error <= 0.001 and passed(candidate, changes_precision=True)


def evidence(**changes: object) -> ParityEvidence:
    """Rounding alone moves the losses by 4 %, and the lever by 5 %."""
    given_runs = {"baseline": run(), "baseline_again": run(), "candidate": run(scaled(1.05))}
    return ParityEvidence(proof="rounding", nudged=(run(scaled(1.04)),), **{**given_runs, **changes})  # type: ignore[arg-type]


def test_single_steps_are_needed_where_rounding_alone_moves_the_losses_too_far() -> None:
    found = judge(evidence())
    assert found.verdict == "not-verified" and needs_single_steps(found)
    assert not needs_single_steps(judge(evidence(candidate=run(scaled(1.0005)))))
    assert not needs_single_steps(judge(evidence(candidate=run(scaled(1.5))))), "it is lost"
    assert not needs_single_steps(judge(evidence(baseline_again=run(scaled(1.03))))), "it does not repeat itself"


def test_they_verify_what_the_trajectory_cannot() -> None:
    found = judge(evidence(restored=RestoredSteps(run(), run(), run(error=1e-5))))
    assert found.verdict == "within" and found.verified and found.single_steps and found.steps == 12
    assert [it.passed for it in found.gates if it.gate in ("G3", "G5")] == [None, True]
    assert found.trajectory_limit is None, "no band for the losses of a whole run"
    assert found.text.startswith("No difference found within 0.1 % in 12 single steps")
    assert "Rounding alone changes the losses too much" in found.text
    assert quality_phrase(found) == "no difference found within 0.1 % over 12 single steps"
    assert any("Rounding alone" in it for it in quality_details(found))
    assert quality_word(found) == "single steps", "the smoothed losses of longer runs differ by more than its limit"


def test_the_text_says_how_steps_differ_that_do_not_verify_it() -> None:
    found = judge(evidence(restored=RestoredSteps(run(), run(), run(error=0.03))))
    assert found.verdict == "not-verified" and not found.single_steps
    assert "rounding alone" in found.text
    assert "what a step changes of the weights differs by 3 % in the median, and 0.1 % is allowed" in found.text


def test_other_gates_still_count() -> None:
    others = msgspec.structs.replace(run(scaled(1.05)), invariants=Invariants(samples=(16,) * STEPS))
    found = judge(evidence(candidate=others, restored=RestoredSteps(run(), run(), run())))
    assert isinstance(found, Parity) and found.verdict == "lost"


def of_tensors(*rows: tuple[float | None, ...]) -> Run:
    """So far apart is what each step changes of each tensor; the rows repeat."""
    whole = run(error=1e-4)
    steps = [
        msgspec.structs.replace(it, tensor_errors=rows[number % len(rows)])
        for number, it in enumerate(whole.restored_steps)
    ]
    return msgspec.structs.replace(whole, restored_steps=tuple(steps))


@pytest.mark.parametrize(
    ("candidate", "keeps_precision", "changes_precision"),
    [
        (of_tensors((1e-6, 0.005)), True, True),
        (of_tensors((1e-6, 0.05)), None, True),
        (of_tensors((1e-6, 0.5)), None, None),
        (of_tensors((0.0, 1e-6), (0.0, 1e-6), (0.5, 1e-6)), True, True),
        (of_tensors((0.0, None), (0.0, None), (0.0, 0.5)), True, True),
        (of_tensors((0.0, 0.5), (0.0, 0.5), (0.0, None)), None, None),
        (of_tensors(()), True, True),
    ],
)
def test_no_tensor_may_hide_in_the_whole(
    candidate: Run, keeps_precision: bool | None, changes_precision: bool | None
) -> None:
    """In a deep network one gradient that is lost moves the whole by next to nothing."""
    assert passed(candidate) is keeps_precision
    assert passed(candidate, changes_precision=True) is changes_precision
