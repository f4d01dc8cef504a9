"""What benchmarks put around an executor runs launches side by side where the executor itself would."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from bench.gpu.naive import KnownMachine
from bench.pieces import KeptAnswers

from hotlap.records import LaunchRequest, Machine, Replicate, Run, TurnRequest
from hotlap.trial.executor import THIS_MACHINE, OneSlot

sys.path.insert(0, str(Path(__file__).parent / "procedures"))

from fake_script import WORKLOAD, FakeExecutor, FakeScript

from hotlap.records import Assignment


class SideBySide(FakeExecutor):
    """Counts the requests of each call."""

    def __init__(self) -> None:
        super().__init__(FakeScript())
        self.calls: list[tuple[str, int]] = []

    def launch_together(self, requests: Sequence[LaunchRequest]) -> tuple[Run, ...]:
        self.calls.append(("launches", len(requests)))
        return super().launch_together(requests)

    def take_replicates(self, requests: Sequence[TurnRequest]) -> tuple[Replicate, ...]:
        self.calls.append(("replicates", len(requests)))
        return super().take_replicates(requests)


@pytest.mark.parametrize(
    "around",
    [
        lambda inner, folder: KnownMachine(inner, Machine()),
        lambda inner, folder: KeptAnswers(inner, folder),
        lambda inner, folder: KeptAnswers(inner, None),
    ],
    ids=["known-machine", "kept-answers", "not-kept"],
)
def test_launches_and_replicates_stay_side_by_side(around: Callable[[OneSlot, Path], OneSlot], tmp_path: Path) -> None:
    inner = SideBySide()
    outer = around(inner, tmp_path)
    one = Assignment(workload=WORKLOAD)
    launches = [LaunchRequest(assignment=one, steps=it) for it in (2, 3)]
    replicates = [TurnRequest(arms=(one, one, one), rounds=3, order_seed=it) for it in (1, 2, 3)]
    runs = outer.submit_together(launches, THIS_MACHINE).result()
    taken = outer.submit_replicates(replicates, THIS_MACHINE).result()
    assert (len(runs), len(taken)) == (2, 3)
    assert inner.calls == [("launches", 2), ("replicates", 3)]


def test_kept_replicates_are_not_taken_again(tmp_path: Path) -> None:
    one = Assignment(workload=WORKLOAD)
    wanted = [TurnRequest(arms=(one, one), rounds=3, order_seed=it) for it in (1, 2)]
    first = KeptAnswers(SideBySide(), tmp_path).take_replicates(wanted)
    again = SideBySide()
    assert KeptAnswers(again, tmp_path).take_replicates(wanted) == first
    assert again.calls == []
