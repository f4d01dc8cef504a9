"""The benchmark of the batch search on a script made of arithmetic, whose best size is known."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest
from fake_script import WORKLOAD, FakeExecutor, FakeScript

from hotlap.experiment.options import BatchChoices
from hotlap.records import BatchRate, BatchSearch, Estimate, Workload

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.batch.__main__ import MOST_SIZES, Bench, largest_of, sizes_around
from bench.batch.report import cells, summary, text_of
from bench.batch.results import (
    CONFIRMING_REPLICATES,
    SHARED_LAUNCHES,
    SWEEP_REPLICATES,
    Progress,
    rates_of,
    rival_of,
    slower_of,
    verdict_of,
)
from bench.batch.taking_turns import TakingTurns, seconds_per_sample
from bench.pieces import store, stored


class Stopper(Exception):
    """The benchmark was killed."""


def bench(progress: Progress | None = None, *, seed: int = 0, **script: Any) -> Bench:
    settings = {"has_loader": True, "samples_per_step": 8, "batch_size": 8, "launch_noise": 0.002, **script}
    executors: list[FakeExecutor] = []

    def executor() -> FakeExecutor:
        executors.append(FakeExecutor(FakeScript(**settings), seed=seed))
        return executors[-1]

    def take_turns(workload: Workload, turns: TakingTurns) -> list[dict[int, float]]:
        return [{it: 1.0 + 0.01 * (it == turns.sizes[0]) for it in turns.sizes}] * turns.rounds

    return Bench(
        take_turns=take_turns,
        workload=WORKLOAD,
        executor=executor,
        choices=BatchChoices(most=128),
        progress=progress or Progress(script="toy"),
        clock=lambda: executors[-1].seconds if executors else 0.0,
    )


def measured(**script: Any) -> Progress:
    return bench(**script).run()


def of(progress: Progress) -> BatchSearch:
    assert progress.search is not None
    return progress.search


def toy(**fields: Any) -> Progress:
    settings: dict[str, Any] = {
        "search": BatchSearch(own=8, knee=32, largest_fitting=64, bound_by="cap", launches=20),
        "swept": ({8: 0.0, 16: math.log(1.2), 64: math.log(1.3)},),
        "sweep_launches": 12,
    }
    return Progress(script="toy", **{**settings, **fields})


def test_the_sweep_times_sizes_around_the_knee_and_compares_the_knee_with_the_fastest_other() -> None:
    progress = measured(fixed_share=0.5)
    knee = of(progress).knee
    true = {it.size: 1 / (0.5 / (it.size / 8) + 0.5) for it in rates_of(progress)}
    assert {8, knee} <= set(true) and len(true) == MOST_SIZES
    for it in rates_of(progress):
        assert it.rate == pytest.approx(true[it.size], rel=0.05)
    rival, slower = rival_of(progress), slower_of(progress)
    assert rival != knee and true[rival] > 0.9 * max(true.values())
    assert slower is not None
    assert slower.low <= true[rival] / true[knee] * 1.02
    assert slower.high >= true[rival] / true[knee] / 1.02
    assert progress.sweep_launches == MOST_SIZES * len(progress.swept) + 2 * CONFIRMING_REPLICATES
    assert 1 <= len(progress.swept) <= SWEEP_REPLICATES and progress.search_seconds > 0


def test_sizes_that_do_not_fit_are_not_part_of_the_sweep() -> None:
    progress = measured(fixed_share=0.8, largest_scale=4.0)
    assert max(it.size for it in rates_of(progress)) == 32 == of(progress).knee
    slower = slower_of(progress)
    assert slower is not None and slower.high < 1 and verdict_of(slower) == "kept"


def test_a_size_that_fails_in_the_sweep_alone_is_left_out_and_named() -> None:
    progress = measured(fixed_share=0.05, breaks_at=4.0)
    assert of(progress).knee <= 16 and 32 not in {it.size for it in rates_of(progress)}
    progress = measured(fixed_share=0.02, breaks_at=2.0)
    assert progress.failed and set(progress.failed) >= {16} and not progress.trouble
    assert "left out: " in text_of([progress]) and "16 of toy" in text_of([progress])
    assert slower_of(progress) is not None


def test_the_comparison_has_no_part_in_choosing_the_fastest_size() -> None:
    """With nothing but noise between sizes, the fastest of the sweep is not faster in fresh launches."""
    of_choice, fresh = [], []
    for world in range(12):
        progress = bench(seed=world, fixed_share=0.0, launch_noise=0.05).run()
        rates = {it.size: it.rate for it in rates_of(progress)}
        of_choice.append(rates[rival_of(progress)] / rates[of(progress).knee])
        slower = slower_of(progress)
        assert slower is not None
        fresh.append(slower.value)
    assert sum(map(math.log, fresh)) / 12 < sum(map(math.log, of_choice)) / 12


@pytest.mark.parametrize("noise", [0.001, 0.05])
def test_the_interval_is_as_wide_as_launches_differ(noise: float) -> None:
    progress = measured(fixed_share=0.3, round_noise=0.001, launch_noise=noise)
    slower = slower_of(msgspec.structs.replace(progress, shared=()))
    assert slower is not None
    width = slower.high / slower.low - 1
    assert width < 0.02 if noise == 0.001 else width > 0.03


def test_where_launches_leave_it_open_sizes_take_turns_within_one() -> None:
    noisy = measured(fixed_share=0.3, launch_noise=0.1)
    assert len(noisy.compared) == CONFIRMING_REPLICATES and len(noisy.shared) == SHARED_LAUNCHES
    between = slower_of(msgspec.structs.replace(noisy, shared=noisy.shared[1:]))
    assert between is not None and verdict_of(between) == "open"
    both = slower_of(noisy)
    assert both is not None and both.high / both.low < between.high / between.low
    assert noisy.shared == pytest.approx([-math.log(1.01)] * SHARED_LAUNCHES)
    assert "within" in cells(noisy)[6]
    sure = measured(fixed_share=0.8, largest_scale=4.0)
    assert len(sure.compared) == CONFIRMING_REPLICATES and sure.shared == ()
    assert "within" not in cells(sure)[6]
    unfinished = msgspec.structs.replace(sure, compared=sure.compared[1:])
    assert slower_of(unfinished) is None


SCRIPT = """\
import sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

sizes = []
for epoch in range(1000):
    for (samples,) in DataLoader(TensorDataset(torch.arange(60.0)), batch_size=int(sys.argv[1]), shuffle=True):
        time.sleep(0.05)
        sizes.append(len(samples))
raise AssertionError("it goes on after all rounds")
"""


def test_a_real_script_trains_with_both_sizes_in_turn(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    turns = TakingTurns(sizes=(4, 16), rounds=5, samples=32, seed=0)
    rounds = seconds_per_sample(sys.executable, str(script), ["4"], turns, str(tmp_path))
    assert [set(it) for it in rounds] == [{4, 16}] * 5
    assert median(it[4] / it[16] for it in rounds) > 1.5, "a step takes as long with both"


def test_a_script_that_ends_with_an_error_is_an_error(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(3)\n", encoding="utf-8")
    with pytest.raises(subprocess.CalledProcessError):
        seconds_per_sample(
            sys.executable, str(script), [], TakingTurns(sizes=(1, 2), rounds=1, samples=2, seed=0), str(tmp_path)
        )


def test_a_comparison_that_fails_is_said() -> None:
    progress = bench(toy(facts=measured().facts, swept_seconds=1000.0), fixed_share=0.9, breaks_at=8.0).run()
    assert slower_of(progress) is None and "could not be compared" in progress.trouble
    assert progress.trouble in cells(progress)


@pytest.mark.parametrize(
    ("own", "knee", "most", "sizes"),
    [
        (16, 64, 256, (16, 32, 64, 128, 256)),
        (16, 16, 256, (4, 8, 16, 32, 64)),
        (1, 1, 4, (1, 2, 4)),
        (16, 48, 64, (8, 16, 32, 48, 64)),
        (32, 32, 16, (2, 4, 8, 16, 32)),
    ],
)
def test_the_sweep_has_few_sizes_around_the_knee(own: int, knee: int, most: int, sizes: tuple[int, ...]) -> None:
    assert sizes_around(BatchSearch(own=own, knee=knee), most) == sizes


def test_the_largest_size_of_the_sweep_follows_from_cap_time_and_memory() -> None:
    search = BatchSearch(own=8, knee=8, rates=(BatchRate(scale=8, samples_per_step=64, batch_size=64, error="full"),))
    assert largest_of(search, 0.01, 128) == 128
    assert largest_of(search, 0.2, 128) == 40
    full = msgspec.structs.replace(search.rates[0], out_of_memory=True)
    assert largest_of(msgspec.structs.replace(search, rates=(full,)), 0.01, 128) == 63
    assert largest_of(search, 10.0, 128) == 8, "the knee is part of it however long its step takes"


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.99, 1.02, "kept"), (1.04, 1.06, "broken"), (1.01, 1.05, "open")]
)
def test_the_promise_is_kept_broken_or_open(low: float, high: float, verdict: str) -> None:
    assert verdict_of(Estimate(value=(low + high) / 2, low=low, high=high, unit="x")) == verdict


def test_the_table_says_how_far_the_knee_is_from_the_fastest_with_the_interval() -> None:
    compared = tuple(math.log(it) for it in (1.04, 1.05, 1.06, 1.05, 1.05))
    progress = toy(compared=compared, disturbed=2)
    row = cells(progress)
    assert row[:6] == ("toy", "8", "32", "cap", "8: 1.00, 16: 1.20, 64: 1.30", "64")
    assert row[6].startswith("4.8 % (") and row[7:] == ("broken", "20", "12")
    text = text_of([progress, toy()])
    assert f"In the worst case, toy, the knee is slower by {row[6]}." in text and "2 of toy" in text
    faster = toy(compared=tuple(-it for it in compared))
    assert "No knee was slower than the fastest other size" in text_of([faster])


def test_a_script_whose_size_cannot_be_changed_is_a_row_with_its_reason() -> None:
    progress = measured(has_loader=False)
    assert "No batch of the script comes from a DataLoader" in cells(progress)[4] and not progress.swept
    assert bench(progress).run() == progress, "what was found out is not tried again"


def test_what_is_finished_is_not_measured_again_after_a_kill(tmp_path: Path) -> None:
    piece = tmp_path / "pieces" / "toy.json"
    kept: list[Progress] = []

    def keep(progress: Progress) -> None:
        store(piece, progress)
        kept.append(progress)
        if len(kept) in (1, 2, 5):
            raise Stopper

    for _ in range(3):
        running = bench(stored(piece, Progress), fixed_share=0.5)
        running.store = keep
        with pytest.raises(Stopper):
            running.run()
    assert [it.name for it in piece.parent.iterdir()] == ["toy.json"]
    running = bench(stored(piece, Progress), fixed_share=0.5)
    running.store = keep
    done = running.run()
    assert done.compared[: len(kept[4].compared)] == kept[4].compared and done.swept[0] == kept[1].swept[0]
    assert len(done.compared) == CONFIRMING_REPLICATES and done.search == kept[0].search
    assert summary(done).verdict in ("kept", "open", "broken")
    assert stored(piece, Progress) == done
