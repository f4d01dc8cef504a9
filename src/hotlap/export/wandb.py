"""Write a study as a run of Weights & Biases: to a folder on this machine, unless the user chose online mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hotlap.errors import StudyError
from hotlap.export.gather import Gathered
from hotlap.export.packages import environment, imported
from hotlap.export.tracked import tracked

PROJECT = "hotlap"
# These keep wandb from reporting its own errors and from collecting data on the machine, the repository and the code.
_OFFLINE = {
    "WANDB_MODE": "offline",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_SILENT": "true",
    "WANDB_CONSOLE": "off",
}
_ONLINE = {**_OFFLINE, "WANDB_MODE": "online"}


def write_wandb(of: Gathered, folder: Path, *, online: bool = False, project: str = PROJECT) -> Path:
    """Write one run below ``folder`` and return its path; ``wandb sync`` can send an offline run later.

    Raises :class:`UsageError` if wandb is not installed, :class:`StudyError` if it rejected the run.
    """
    told = tracked(of)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(
            f"{folder} cannot be made: {error.strerror or error}.", remedy="Name another folder with --out."
        ) from error
    with environment({**(_ONLINE if online else _OFFLINE), "WANDB_DIR": str(folder.absolute())}):
        wandb = imported("wandb", extra="wandb")
        try:
            run = wandb.init(
                project=project,
                name=told.name,
                notes=told.note,
                config=dict(told.config),
                dir=str(folder.absolute()),
                mode="online" if online else "offline",
                settings=_settings(wandb),
            )
            for step, numbers in told.series:
                run.log(dict(numbers), step=step)
            run.summary.update(dict(told.summary))
            where = Path(run.dir).parent
            run.finish()
        except (wandb.errors.Error, OSError) as error:
            raise StudyError(
                f"Weights & Biases rejected the run: {error}.",
                where=str(folder),
                remedy="Check the folder, and with --online the login (`wandb login`).",
            ) from error
    return where


def _settings(wandb: Any) -> Any:
    """No samples of the machine: the study is over, and they would not be part of it."""
    return wandb.Settings(x_disable_stats=True, x_disable_meta=True, console="off", silent=True)
