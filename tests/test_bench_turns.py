"""The benchmark of blocks in several turns tells less noise in the same time from more."""

from __future__ import annotations

import random
from pathlib import Path

import psutil
import pytest
from bench.turns import __main__ as benchmark

from hotlap.records import Block, LaunchRequest, Machine, Replicate, Run, Steps, Stopped, TurnRequest
from hotlap.trial.executor import OneSlot


class Noisy(OneSlot):
    """Arms that differ by chance: half as much with more than one turn, whose rounds take a third longer."""

    def machine(self) -> Machine:
        raise NotImplementedError

    def launch(self, request: LaunchRequest) -> Run:
        draw = random.Random(request.assignment.seed)
        slow = [1.4 if draw.random() < 0.5 else 1.0 for _ in range(1 + request.steps // 12)]
        steps = tuple(0.1 * slow[it // 12] for it in range(request.steps))
        return Run(ending=Stopped(), steps=Steps(wall_seconds=steps))

    def take_turns(self, request: TurnRequest) -> Replicate:
        draw = random.Random(f"{request.order_seed} {request.block_turns}")
        noise = 0.04 if request.block_turns == 1 else 0.02
        levels = [0.1 * (1 + draw.gauss(0, noise)) for _ in request.arms]
        block = Block(steps=8 // request.block_turns, samples=1, wall_seconds=0.8 / request.block_turns)
        blocks = (block,) * (request.rounds * request.block_turns)
        runs = tuple(Run(ending=Stopped(), blocks=blocks) for _ in request.arms)
        return Replicate(runs=runs, rounds=tuple((it,) * request.rounds for it in levels))


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(benchmark, "local_executor", lambda folder: Noisy())
    return tmp_path / "turns"


def test_less_noise_in_a_longer_time_is_weighed(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["--out", str(report), "--replicates", "60", "--rounds", "4"]) == 0
    one, two, four = benchmark.earlier(report)
    assert (one.turns, two.turns, four.turns) == benchmark.WAYS
    assert one.difference == pytest.approx(0.04 * 2**0.5, rel=0.2)
    assert one.share == 1 and two.low < two.share < two.high < 1
    assert two.share == pytest.approx(0.25 * 10 / 9, rel=0.4)
    assert four.seconds == pytest.approx(one.seconds * 12 / 9)
    assert one.chosen + two.chosen + four.chosen == 60 and one.chosen < 20
    assert "of the time" in capsys.readouterr().out


def test_other_rows_stay(report: Path) -> None:
    assert benchmark.main(["--out", str(report), "--replicates", "3", "--examples", "gpt"]) == 0
    assert benchmark.main(["--out", str(report), "--replicates", "4", "--examples", "bert"]) == 0
    assert benchmark.main(["--out", str(report), "--replicates", "5", "--examples", "gpt"]) == 0
    assert [(it.example, it.replicates) for it in benchmark.earlier(report)] == [("bert", 4)] * 3 + [("gpt", 5)] * 3


def test_the_neighbour_ends_with_the_benchmark() -> None:
    before = psutil.Process().children()
    with benchmark.neighbour(0.01):
        (process,) = (it for it in psutil.Process().children() if it not in before)
    assert not process.is_running()


def test_too_few_replicates_are_refused(report: Path) -> None:
    with pytest.raises(SystemExit):
        benchmark.main(["--out", str(report), "--replicates", "2"])
