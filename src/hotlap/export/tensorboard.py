"""Write a study as TensorBoard event files: curves of both runs, each lever's trial as
hyperparameters, the report as text.

Tags: ``loss``, ``samples_per_second`` and ``phases/...`` over steps, in the folders ``baseline`` and ``plan``, so that
they overlay; ``speedup/...`` over the number of the lever; a folder for each lever under ``levers``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hotlap import plan as plans_of
from hotlap.errors import StudyError
from hotlap.export.gather import Gathered
from hotlap.export.packages import imported
from hotlap.export.tables import comparison_of
from hotlap.export.tracked import comparison_numbers, lever_hyperparameters, name_of, run_series, tracked

_OUTSIDE_PHASES = frozenset({"loss", "samples", "samples_per_second"})


def write_tensorboard(of: Gathered, folder: Path) -> Path:
    """Write event files to a folder below ``folder`` that is named after the study; return that folder.

    Raises :class:`UsageError` if TensorBoard is not installed, :class:`StudyError` if the study was exported there
    before (event files are appended to, never replaced) or the folder cannot be written.
    """
    writer_of = imported("torch.utils.tensorboard", extra="tensorboard").SummaryWriter
    target = folder / tracked(of).name
    try:
        if target.exists():
            raise StudyError(
                f"The study was exported to {target} before, and event files cannot be replaced in part.",
                remedy="Remove that folder, or name another one with --out.",
            )
        target.mkdir(parents=True)
        _write_runs(of, target, writer_of)
        _write_levers(of, target, writer_of)
    except OSError as error:
        raise StudyError(
            f"Event files cannot be written to {target}: {error.strerror or error}.",
            remedy="Name another folder with --out.",
        ) from error
    return target


def _write_runs(of: Gathered, target: Path, writer_of: Any) -> None:
    for name, run in (("baseline", of.baseline), ("plan", of.planned)):
        if run is None:
            continue
        with writer_of(log_dir=str(target / name)) as writer:
            for step, numbers in enumerate(run_series(run), start=1):
                for key, it in numbers:
                    writer.add_scalar(key if key in _OUTSIDE_PHASES else f"phases/{key}", it, step)
    told = tracked(of)
    with writer_of(log_dir=str(target)) as writer:
        writer.add_text("headline", _verbatim([told.note]))
        writer.add_text("workload", _verbatim([f"{key}: {it}" for key, it in told.config]))
        writer.add_text("plan", _verbatim(plans_of.to_toml(of.study.plan).splitlines()))
        for key, it in told.summary:
            writer.add_scalar(f"summary/{key}", it, 0)


def _write_levers(of: Gathered, target: Path, writer_of: Any) -> None:
    """Each lever with a measured speedup as a run of its own, with its values as hyperparameters."""
    measured = [(it, comparison_of(it)) for it in of.study.outcomes]
    for outcome, comparison in measured:
        if comparison is None:
            continue
        metrics = {f"levers/{key}": it for key, it in comparison_numbers(comparison)}
        folder = target / "levers" / (name_of(outcome.lever) or "lever")
        with writer_of(log_dir=str(folder)) as writer:
            writer.add_hparams(lever_hyperparameters(outcome), metrics, run_name=".")


def _verbatim(lines: Sequence[str]) -> str:
    """Lines that TensorBoard's Markdown shows verbatim, without links or images."""
    return "\n".join(f"    {line}" for line in lines)
