"""Levers that one launch switches between blocks, on a real device."""

from __future__ import annotations

import pytest

from hotlap.levers.support.situations import make_setting
from hotlap.records import Plan, Replicate, Setting, Stopped, TurnRequest

pytestmark = pytest.mark.gpu

BFLOAT16 = make_setting("mixed-precision", dtype="bfloat16")
FLOAT16 = make_setting("mixed-precision", dtype="float16")
TF32 = make_setting("matmul-precision", precision="high")
FUSED = make_setting("fused-optimizer", implementation="fused")
CHANNELS_LAST = make_setting("channels-last")
BENCHMARK = make_setting("cudnn-benchmark")
AHEAD = make_setting("device-prefetch")
COMPILED = make_setting("compile", mode="default")
ROUNDS = 4


def _switched(lab, *settings: tuple[Setting, ...], model: str = "conv") -> Replicate:
    """The unmodified trainer twice, and it with each of these settings, within one launch."""
    plans = [Plan(), Plan(), *(Plan(settings=it) for it in settings)]
    arms = tuple(lab.assignment("--model", model, plan=it) for it in plans)
    return lab.executor.take_turns(TurnRequest(arms=arms, rounds=ROUNDS, block_seconds=0.1, one_launch=True))


@pytest.mark.parametrize("model", ["mlp", "conv"])
def test_each_configuration_has_every_round_and_its_own_peak(lab, model: str) -> None:
    settings = [(BFLOAT16,), (TF32,), (FUSED,), (AHEAD,), (BFLOAT16, FUSED, AHEAD)]
    settings += [(CHANNELS_LAST,), (BENCHMARK,)] if model == "conv" else []
    turns = _switched(lab, *settings, model=model)
    assert [type(run.ending) for run in turns.runs] == [Stopped] * len(turns.runs), turns.runs[-1].ending
    assert [len(row) for row in turns.rounds] == [ROUNDS] * len(turns.runs)
    assert not any(run.steps.not_finite for run in turns.runs)
    assert all(run.device_peak_bytes == max(it.device_peak_bytes for it in run.blocks) > 0 for run in turns.runs)
    assert not any(run.notes for run in turns.runs), [run.notes for run in turns.runs]


def test_a_scale_for_float16_is_put_on_and_taken_off(lab) -> None:
    turns = _switched(lab, (FLOAT16,), (FLOAT16, TF32))
    assert [type(run.ending) for run in turns.runs] == [Stopped] * 4
    assert [len(row) for row in turns.rounds] == [ROUNDS] * 4


def test_what_compiles_within_a_launch_leaves_the_others_as_they_were(lab) -> None:
    turns = _switched(lab, (COMPILED,), (COMPILED, BFLOAT16), model="mlp")
    assert [type(run.ending) for run in turns.runs] == [Stopped] * 4
    assert [len(row) for row in turns.rounds] == [ROUNDS] * 4
    assert not any(run.notes for run in turns.runs), [run.notes for run in turns.runs]
    first, again = turns.rounds[:2]
    ratios = sorted(one / other for one, other in zip(first, again, strict=True))
    assert 0.5 < ratios[ROUNDS // 2] < 2
