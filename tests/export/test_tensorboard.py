"""Event files, read back by TensorBoard's own reader."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import fakes
import msgspec
import pytest

from hotlap.errors import StudyError, UsageError
from hotlap.export.gather import Gathered
from hotlap.export.tensorboard import write_tensorboard


def accumulated(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder)).Reload()


def test_both_runs_step_by_step(gathered: Gathered, tmp_path: Path) -> None:
    target = write_tensorboard(gathered, tmp_path)
    assert target == tmp_path / fakes.FINISHED.identifier
    baseline, plan = accumulated(target / "baseline"), accumulated(target / "plan")
    assert [(it.step, it.value) for it in baseline.Scalars("loss")] == [(1, 1.5), (3, 0.75)]
    assert [it.value for it in plan.Scalars("phases/wall_seconds")] == pytest.approx([0.15, 0.05, 0.05])
    assert [it.value for it in baseline.Scalars("samples_per_second")] == pytest.approx([32 / 0.6, 160, 80])


def test_speedups_text_and_hyperparameters(gathered: Gathered, tmp_path: Path) -> None:
    target = write_tensorboard(gathered, tmp_path)
    whole = accumulated(target)
    assert whole.Scalars("summary/speedup")[0].value == pytest.approx(3.65)
    assert whole.Scalars("summary/levers/loader/speedup_low")[0].value == pytest.approx(1.8628, rel=1e-4)
    text = whole.Tensors("headline/text_summary")[0].tensor_proto.string_val[0].decode()
    assert text.startswith("    3.65x faster")
    assert sorted(it.name for it in (target / "levers").iterdir()) == sorted(
        it.lever for it in fakes.OUTCOMES if getattr(it.verdict, "comparison", None) is not None
    )
    loader = accumulated(target / "levers" / "loader")
    assert loader.Scalars("levers/speedup")[0].value == pytest.approx(1.91)
    chosen = loader.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"loader/num_workers" in chosen and b"kept" in chosen


def test_foreign_text_stays_text_and_in_its_folder(tmp_path: Path) -> None:
    study = msgspec.structs.replace(
        fakes.FINISHED,
        identifier="../../" + fakes.HOSTILE_TEXT,
        workload=fakes.HOSTILE.workload,
        outcomes=(msgspec.structs.replace(fakes.OUTCOMES[0], lever="../up <b>"),),
    )
    target = write_tensorboard(Gathered(study=study), tmp_path)
    assert target.parent == tmp_path
    assert {it.parent for it in target.glob("levers/*")} == {target / "levers"}
    shown = accumulated(target).Tensors("workload/text_summary")[0].tensor_proto.string_val[0].decode()
    assert all(it.startswith("    ") for it in shown.split("\n"))
    assert "\x1b" not in shown


def test_event_files_are_not_added_to(gathered: Gathered, tmp_path: Path) -> None:
    write_tensorboard(gathered, tmp_path)
    with pytest.raises(StudyError, match="exported to"):
        write_tensorboard(gathered, tmp_path)


def test_without_tensorboard_the_extra_is_named(
    gathered: Gathered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError) as raised:
        write_tensorboard(gathered, tmp_path)
    assert 'pip install "hotlap[tensorboard]"' in raised.value.remedy
    assert not list(tmp_path.iterdir())
