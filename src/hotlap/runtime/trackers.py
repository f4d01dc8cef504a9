"""Experiment trackers are kept from the network and from the user's runs while a trial runs.

By environment variables that their makers document; TensorBoard needs none, since its files are redirected. What a
script says in so many words overrides these: :mod:`hotlap.runtime.silenced` sees to that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrackerVariable:
    """One variable and its value; ``{folder}`` stands for a folder in the study, ``{uri}`` for its address."""

    name: str
    value: str
    source: str


TABLE = (
    TrackerVariable("WANDB_MODE", "disabled", "docs.wandb.ai, Environment variables"),
    TrackerVariable("WANDB_SILENT", "true", "docs.wandb.ai, Environment variables"),
    TrackerVariable("WANDB_DIR", "{folder}", "docs.wandb.ai, Environment variables"),
    TrackerVariable("WANDB_ERROR_REPORTING", "false", "docs.wandb.ai, Environment variables"),
    TrackerVariable("MLFLOW_TRACKING_URI", "{uri}/mlflow", "mlflow.org/docs, mlflow.set_tracking_uri"),
    TrackerVariable("MLFLOW_REGISTRY_URI", "{uri}/mlflow", "mlflow.org/docs, mlflow.set_registry_uri"),
    # MLflow 3 refuses a tracking folder without this one.
    TrackerVariable("MLFLOW_ALLOW_FILE_STORE", "true", "mlflow.org/docs, mlflow.environment_variables"),
    TrackerVariable("MLFLOW_DISABLE_TELEMETRY", "true", "mlflow.org/docs, Usage tracking"),
    TrackerVariable("NEPTUNE_MODE", "offline", "docs.neptune.ai, Connection modes (2.x and 3.x)"),
    TrackerVariable("CLEARML_OFFLINE_MODE", "1", "clear.ml/docs, Offline mode"),
    TrackerVariable("COMET_AUTO_LOG_DISABLE", "true", "comet.com/docs, Configure the SDK"),
    TrackerVariable("TRACKIO_DIR", "{folder}/trackio", "huggingface.co/docs/trackio, Environment variables"),
    TrackerVariable("SWANLAB_MODE", "disabled", "docs.swanlab.cn, Environment variables"),
    TrackerVariable("CODECARBON_SAVE_TO_API", "false", "mlco2.github.io/codecarbon, Configuration"),
    TrackerVariable("CODECARBON_SAVE_TO_FILE", "false", "mlco2.github.io/codecarbon, Configuration"),
    TrackerVariable("DVC_STUDIO_OFFLINE", "true", "dvc.org/doc/studio, Environment variables"),
    TrackerVariable("HF_HUB_DISABLE_TELEMETRY", "1", "huggingface.co/docs/huggingface_hub, Environment variables"),
)


def tracker_environment(study_directory: Path) -> dict[str, str]:
    """The variables to set for a child before it starts. What trackers keep locally goes to a folder of the study."""
    folder = study_directory.absolute() / "trackers"
    return {it.name: it.value.format(folder=folder, uri=folder.as_uri()) for it in TABLE}
