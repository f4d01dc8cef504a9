"""Export a study as an MLflow run, to a folder on this machine or to the user's tracking server.

In a folder the store is a database, since MLflow 3 rejects file stores unless a variable allows them. With only
mlflow-skinny installed, which supports no databases, it is a file store.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotlap.errors import StudyError
from hotlap.export.gather import Gathered
from hotlap.export.packages import environment, imported
from hotlap.export.tracked import Tracked, tracked

EXPERIMENT = "hotlap"
FILES_ALLOWED = "MLFLOW_ALLOW_FILE_STORE"
"""The variable without which MLflow 3 rejects a file store."""

_DATABASE = "sqlite://"
_METRICS_AT_ONCE = 1000
"""The most metrics that one call of MLflow's API accepts (its REST documentation, *Log Batch*)."""
_PARAMETERS_AT_ONCE = 100
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    FILES_ALLOWED: "true",
}


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """The identifier of a run, and the address of its store."""

    identifier: str
    address: str


def write_mlflow(
    of: Gathered, folder: Path, *, tracking_uri: str | None = None, experiment: str = EXPERIMENT
) -> LoggedRun:
    """Write one run of that experiment.

    Without ``tracking_uri`` the store is ``folder``, and nothing leaves the machine. Raises :class:`UsageError` if
    MLflow is not installed, :class:`StudyError` if the store cannot be written.
    """
    with environment(_QUIET):
        mlflow = imported("mlflow", extra="mlflow")
        address = tracking_uri or _local_address(folder.absolute())
        artifacts = None if tracking_uri else (folder.absolute() / "artifacts").as_uri()
        try:
            client = mlflow.MlflowClient(tracking_uri=address)
            return LoggedRun(_log(client, mlflow.entities, tracked(of), experiment, artifacts), address)
        except (mlflow.exceptions.MlflowException, OSError) as error:
            raise StudyError(
                f"MLflow rejected the run: {error}.", where=address, remedy="Check the address and the folder."
            ) from error


def how_to_open(run: LoggedRun) -> str:
    """The command that shows a run's store on this machine."""
    allowed = "" if run.address.startswith(_DATABASE) else f"{FILES_ALLOWED}=true "
    return f"{allowed}mlflow ui --backend-store-uri {run.address}"


def _local_address(folder: Path) -> str:
    if not all(_installed(it) for it in ("sqlalchemy", "alembic")):
        return folder.as_uri()
    folder.mkdir(parents=True, exist_ok=True)
    return f"{_DATABASE}/{folder.as_posix()}/mlflow.db"


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # blocked by an entry of None
        return False


def _log(client: Any, entities: Any, told: Tracked, experiment: str, artifacts: str | None) -> str:
    found = client.get_experiment_by_name(experiment)
    number = found.experiment_id if found is not None else client.create_experiment(experiment, artifacts)
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
