"""A study as a run of MLflow, in a folder on this machine or where the user's tracking address points."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hotlap.errors import StudyError
from hotlap.export.gather import Gathered
from hotlap.export.packages import environment, imported
from hotlap.export.tracked import Tracked, tracked

EXPERIMENT = "hotlap"
_METRICS_AT_ONCE = 1000
"""The most that MLflow's interface takes in one call (its REST documentation, *Log Batch*)."""
_PARAMETERS_AT_ONCE = 100
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    # MLflow 3 refuses a folder as a store without this one.
    "MLFLOW_ALLOW_FILE_STORE": "true",
}


def write_mlflow(of: Gathered, folder: Path, *, tracking_uri: str | None = None, experiment: str = EXPERIMENT) -> str:
    """One run in that experiment; its identifier.

    Without ``tracking_uri`` the store is ``folder``, and nothing leaves the machine. Raises :class:`UsageError` where
    MLflow is not installed, :class:`StudyError` where the store cannot be written.
    """
    with environment(_QUIET):
        mlflow = imported("mlflow", extra="mlflow")
        address = tracking_uri or folder.absolute().as_uri()
        try:
            client = mlflow.MlflowClient(tracking_uri=address)
            return _log(client, mlflow.entities, tracked(of), experiment)
        except (mlflow.exceptions.MlflowException, OSError) as error:
            raise StudyError(
                f"MLflow did not take the run: {error}.", where=address, remedy="Check the address and the folder."
            ) from error


def _log(client: Any, entities: Any, told: Tracked, experiment: str) -> str:
    found = client.get_experiment_by_name(experiment)
    number = found.experiment_id if found is not None else client.create_experiment(experiment)
    tags = {"mlflow.runName": told.name, "mlflow.note.content": told.note}
    run = client.create_run(number, tags=tags)
    identifier = str(run.info.run_id)
    now = int(1000 * time.time())
    parameters = [entities.Param(key, str(it)) for key, it in told.config]
    metrics = [entities.Metric(key, it, now, 0) for key, it in told.summary]
    metrics += [entities.Metric(key, it, now, step) for step, row in told.series for key, it in row]
    for some in _parts(parameters, _PARAMETERS_AT_ONCE):
        client.log_batch(identifier, params=some)
    for some in _parts(metrics, _METRICS_AT_ONCE):
        client.log_batch(identifier, metrics=some)
    client.set_terminated(identifier)
    return identifier


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))
