"""The proof of a patch: the patched copy against the levers from outside, on a script made of arithmetic."""

from __future__ import annotations

import msgspec
import pytest
from fake_script import WORKLOAD, Effect
from pair import UNCHANGED, Pair, in_checkout

from hotlap.errors import HotlapError
from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.check.patched import prove_patch
from hotlap.records import CallSite, PatchProof, Plan, Replicate, Run, Sides, TurnRequest

LEVER = setting("a-lever")
SIDES = Sides(before=WORKLOAD, before_plan=Plan(settings=(LEVER,)), now=in_checkout(WORKLOAD))
OPTIONS = Options(delta=0.05, parity_steps=60)


def proved(patched: Effect, lever: Effect = UNCHANGED) -> PatchProof:
    executor = Pair(patched, effects={LEVER: lever})
    return prove_patch(SIDES, {"/home/ada/train.py"}, OPTIONS, executor, clock=executor.clock)


def test_a_copy_that_does_what_the_levers_do() -> None:
    found = proved(Effect(compute=0.5), Effect(compute=0.5))
    assert not found.refusal
    assert found.numbers is not None and found.numbers.verdict == "exact"
    assert found.speed is not None and found.speed.speedup.low < 1 < found.speed.speedup.high * 1.02
    assert "as fast as the levers" in found.text and "interval" in found.text


def test_a_copy_that_is_slower_is_refused_with_the_numbers() -> None:
    found = proved(Effect(), Effect(compute=0.5))
    assert "slower than the levers: 0." in found.refusal and "replicates of" in found.refusal


def test_a_copy_that_is_faster_is_not() -> None:
    assert not proved(Effect(compute=0.5), Effect(compute=0.7)).refusal


def test_a_copy_that_computes_something_else_is_refused() -> None:
    found = proved(Effect(compute=0.5, loss=1.01), Effect(compute=0.5))
    assert found.refusal.startswith("The patched copy does not produce the same results as the levers.")


@pytest.mark.parametrize("fails", ["crash", "memory", "hang"])
def test_a_copy_that_fails_is_refused(fails: str) -> None:
    assert "does not run to completion" in proved(Effect(fails=fails)).refusal


def test_a_copy_that_diverges_is_refused() -> None:
    executor = _Diverging(Effect())
    found = prove_patch(SIDES, (), OPTIONS, executor, clock=executor.clock)
    assert "diverged" in found.refusal


def test_a_script_that_fails_with_the_levers_proves_nothing() -> None:
    with pytest.raises(HotlapError, match="With the plan's levers the script failed"):
        proved(Effect(), Effect(fails="crash"))


def test_a_copy_that_runs_the_originals_files_proves_nothing() -> None:
    executor = _FromOriginal(Effect())
    with pytest.raises(HotlapError, match=r"still used the unpatched /home/ada/train\.py"):
        prove_patch(SIDES, {"/home/ada/train.py"}, OPTIONS, executor, clock=executor.clock)


class _Changed(Pair):
    def take_turns(self, request: TurnRequest) -> Replicate:
        turns = super().take_turns(request)
        return msgspec.structs.replace(turns, runs=(*turns.runs[:2], self.changed(turns.runs[2])))

    def changed(self, run: Run) -> Run:
        raise NotImplementedError


class _Diverging(_Changed):
    def changed(self, run: Run) -> Run:
        return msgspec.structs.replace(run, steps=msgspec.structs.replace(run.steps, not_finite=(7,)))


class _FromOriginal(_Changed):
    def changed(self, run: Run) -> Run:
        site = CallSite(role="model", file="/home/ada/train.py", line=3)
        return msgspec.structs.replace(run, facts=msgspec.structs.replace(run.facts, sites=(site,)))
