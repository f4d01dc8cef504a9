"""The benchmark of the batch search on a script made of arithmetic, whose best size is known."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_script import WORKLOAD, FakeExecutor, FakeScript

from hotlap.experiment.options import BatchChoices
from hotlap.procedures.batch.changing import Changer
from hotlap.records import BatchSearch, Estimate, ResizeBatches

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.batch.__main__ import (
    CONFIRMING_REPLICATES,
    MOST_SIZES,
    REPLICATES,
    Row,
    Sweep,
    Swept,
    cells,
    kept,
    row_of,
    sizes_around,
    text_of,
)


def measured(**script: Any) -> Row:
    settings = {"has_loader": True, "samples_per_step": 8, "batch_size": 8, "launch_noise": 0.002, **script}
    return row_of("toy", WORKLOAD, lambda: FakeExecutor(FakeScript(**settings)), BatchChoices(most=128))


def fake_sweep(script: FakeScript) -> Sweep:
    changer = Changer(
        own=8,
        samples=None,
        changed_by="loader",
        instruments=lambda size: (ResizeBatches(own=8, size=size),) if size != 8 else (),
        workload=lambda size: None,
    )
    return Sweep(WORKLOAD, FakeExecutor(script), changer)


def toy(**fields: Any) -> Row:
    swept = (Swept(size=8, rate=1.0, replicates=3), Swept(size=16, rate=1.2, replicates=1))
    settings: dict[str, Any] = {
        "own": 8, "knee": 32, "largest_fitting": 64, "bound_by": "cap", "swept": swept, "rival": 64,
        "search_launches": 20, "sweep_launches": 12,
    }  # fmt: skip
    return Row(script="toy", **{**settings, **fields})


def test_the_sweep_times_sizes_around_the_knee_and_compares_the_knee_with_the_fastest_other() -> None:
    row = measured(fixed_share=0.5)
    true = {it.size: 1 / (0.5 / (it.size / 8) + 0.5) for it in row.swept}
    assert {8, row.knee, 128} <= set(true) and len(true) <= MOST_SIZES
    for it in row.swept:
        assert it.rate == pytest.approx(true[it.size], rel=0.05)
    assert row.rival != row.knee and true[row.rival] > 0.9 * max(true.values())
    assert row.slower is not None
    assert row.slower.low <= true[row.rival] / true[row.knee] * 1.02
    assert row.slower.high >= true[row.rival] / true[row.knee] / 1.02
    timed = sum(it.replicates for it in row.swept if it.size != 8)
    assert row.sweep_launches == 2 * (timed + CONFIRMING_REPLICATES)


def test_a_size_that_is_clearly_slower_gets_one_replicate() -> None:
    row = measured(fixed_share=0.8)
    replicates = {it.size: it.replicates for it in row.swept}
    assert replicates[128] == REPLICATES and row.knee > 16
    assert {size: count for size, count in replicates.items() if size < 8} != {}
    assert all(count == 1 for size, count in replicates.items() if size < 8)


def test_sizes_that_do_not_run_are_left_out_of_the_sweep() -> None:
    row = measured(fixed_share=0.8, largest_scale=4.0)
    assert max(it.size for it in row.swept) == 32 == row.knee
    assert row.slower is not None and row.slower.high < 1


def test_the_comparison_with_the_knee_has_no_part_in_choosing_the_fastest_size() -> None:
    sweep = fake_sweep(
        FakeScript(has_loader=True, batch_size=8, samples_per_step=8, fixed_share=0.0, launch_noise=0.05)
    )
    swept = sweep.swept((4, 8, 16, 32))
    launches = sweep.launches
    fastest = max(swept, key=lambda it: it.rate)
    fresh = sweep.compared(fastest.size, 8 if fastest.size != 8 else 16)
    assert sweep.launches == launches + 2 * CONFIRMING_REPLICATES
    assert fresh is not None and fresh.low < fresh.value < fresh.high and fresh.low < 1.05


@pytest.mark.parametrize("noise", [0.001, 0.05])
def test_the_interval_is_as_wide_as_launches_differ(noise: float) -> None:
    steady = FakeScript(has_loader=True, batch_size=8, samples_per_step=8, fixed_share=0.0, round_noise=0.001)
    found = fake_sweep(replace(steady, launch_noise=noise)).compared(16, 8)
    assert found is not None
    width = found.high / found.low - 1
    assert width < 0.02 if noise == 0.001 else width > 0.03


def test_a_failed_replicate_leaves_no_comparison() -> None:
    script = FakeScript(has_loader=True, batch_size=8, samples_per_step=8, largest_scale=2.0)
    assert fake_sweep(script).compared(32, 8) is None


@pytest.mark.parametrize(
    ("own", "knee", "most", "sizes"),
    [
        (16, 64, 256, (4, 8, 16, 32, 64, 128, 256)),
        (16, 16, 256, (2, 4, 8, 16, 32, 64, 128)),
        (1, 1, 4, (1, 2, 4)),
        (16, 48, 64, (2, 4, 8, 16, 32, 48, 64)),
        (32, 32, 16, (1, 2, 4, 8, 16, 32)),
    ],
)
def test_the_sweep_has_few_sizes_around_the_knee(own: int, knee: int, most: int, sizes: tuple[int, ...]) -> None:
    assert sizes_around(BatchSearch(own=own, knee=knee), most) == sizes


def test_the_table_says_how_far_the_knee_is_from_the_fastest_with_the_interval() -> None:
    row = toy(slower=Estimate(value=1.0526, low=1.0101, high=1.0989, unit="x"), disturbed=2)
    assert cells(row) == (
        *("toy", "8", "32", "cap", "8: 1.00, 16: 1.20*", "64", "5.0 % (1.0 to 9.0)", "20", "12"),
    )  # fmt: skip
    text = text_of([row, toy()])
    assert "In the worst case, toy, the knee is slower by 5.0 % (1.0 to 9.0)." in text
    assert "2 of toy" in text


def test_a_script_whose_size_cannot_be_changed_is_a_row_with_its_reason() -> None:
    row = measured(has_loader=False)
    assert "No batch of the script comes from a DataLoader" in cells(row)[4] and row.swept == ()


def test_a_finished_script_is_not_measured_again(tmp_path: Path) -> None:
    row = toy(slower=Estimate(value=1.1, low=1.0, high=1.2, unit="x"))
    measured: list[Row] = [row]
    take: Callable[[], Row] = measured.pop
    assert kept(tmp_path / "pieces", "toy-64", take) == row and not measured
    assert kept(tmp_path / "pieces", "toy-64", take) == row
    assert [it.name for it in (tmp_path / "pieces").iterdir()] == ["toy-64.json"]
