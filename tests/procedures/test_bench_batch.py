"""The benchmark of the batch search on a script made of arithmetic, whose best size is known."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from fake_script import WORKLOAD, FakeExecutor, FakeScript

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.batch.__main__ import REPLICATES, Row, cells, kept, row_of, text_of


def measured(**script: Any) -> Row:
    settings = {"has_loader": True, "samples_per_step": 8, "batch_size": 8, "launch_noise": 0.002, **script}
    return row_of("toy", WORKLOAD, lambda: FakeExecutor(FakeScript(**settings)), 128)


def test_the_sweep_times_all_sizes_and_the_knee_is_close_to_the_best() -> None:
    row = measured(fixed_share=0.5)
    assert [size for size, _ in row.swept][:4] == [1, 2, 3, 4] and row.swept[-1][0] == 128
    true = {size: 1 / (0.5 / (size / 8) + 0.5) for size, _ in row.swept}
    for size, rate in row.swept:
        assert rate == pytest.approx(true[size], rel=0.05)
    assert row.best >= 96 and row.regret is not None and -0.01 < row.regret < 0.06
    assert row.sweep_launches == 2 * REPLICATES * (len(row.swept) - 1) > row.search_launches > 0


def test_sizes_that_do_not_run_are_left_out_of_the_sweep() -> None:
    row = measured(fixed_share=0.8, largest_scale=4.0)
    assert max(size for size, _ in row.swept) == 32 == row.best == row.knee
    assert row.regret == 0


def test_the_table_says_how_far_the_knee_is_from_the_best() -> None:
    row = Row(
        script="toy", own=8, knee=32, largest_fitting=64, swept=((8, 1.0), (32, 1.9), (64, 2.0)),
        search_launches=20, sweep_launches=12,
    )  # fmt: skip
    assert cells(row) == ("toy", "8", "32", "64", "5.0 %", "20", "12")
    assert "The knee is at most 5.0 % slower" in text_of([row])


def test_a_script_whose_size_cannot_be_changed_is_a_row_with_its_reason() -> None:
    row = measured(has_loader=False)
    assert "No batch of the script comes from a DataLoader" in cells(row)[4] and row.swept == ()


def test_a_finished_script_is_not_measured_again(tmp_path: Path) -> None:
    row = Row(
        script="toy", own=8, knee=32, largest_fitting=64, swept=((8, 1.0), (32, 1.9)),
        search_launches=3, sweep_launches=6,
    )  # fmt: skip
    measured = [row]
    assert kept(tmp_path / "pieces", "toy-64", measured.pop) == row and not measured
    assert kept(tmp_path / "pieces", "toy-64", measured.pop) == row
    assert [it.name for it in (tmp_path / "pieces").iterdir()] == ["toy-64.json"]
