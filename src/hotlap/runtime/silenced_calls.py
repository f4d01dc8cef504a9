"""The calls of trackers that are silenced in a trial, and how: one row each.

Names are public ones, as the trackers' own documentation gives them, unless the row's ``source`` says otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

_DISABLED = "{} was asked to go online by the script; it is disabled in trials."
_LOCAL = "{} was asked to go online by the script; it stays local in trials."
_NO_UPLOAD = "The script uploads with {}; trials upload nothing."


@dataclass(frozen=True)
class Call:
    """A suppressed call: the module of the row, and the arguments by name."""

    module: ModuleType
    arguments: dict[str, Any]


Answer: TypeAlias = Callable[[Call], Any]


@dataclass(frozen=True, kw_only=True)
class Forced:
    """A call whose arguments get these ``values``; ``{folder}`` in them is a folder of the run, ``{uri}`` its address.

    ``goes_online`` are the script's own values that would have sent something, which ``note`` then reports. A call with
    one of the values in ``kept`` is unchanged. ``without_variables`` are environment variables that mean the same as an
    argument. With ``on_import`` the call is made once, as soon as the module is imported.
    """

    module: str
    name: str
    values: tuple[tuple[str, object], ...]
    source: str
    note: str
    goes_online: Callable[[Any], bool] = bool
    kept: tuple[str, ...] = ()
    without_variables: tuple[str, ...] = ()
    on_import: bool = False


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A suppressed call: the script gets ``answer`` instead, and the report ``note``."""

    module: str
    name: str
    source: str
    note: str
    answer: Answer


Row: TypeAlias = Forced | Answered


def _is_online(mode: Any) -> bool:
    return str(getattr(mode, "value", mode)) not in ("disabled", "offline", "local", "debug", "dryrun", "read-only")


def _is_remote(address: Any) -> bool:
    text = str(address)
    scheme = text.partition("://")[0] if "://" in text else ""
    return scheme not in ("", "file", "sqlite") or text == "databricks" or text.startswith("databricks-")


def _is_false(value: Any) -> bool:
    return not value


def _constant(value: object) -> Answer:
    return lambda call: value


def _argument(name: str) -> Answer:
    return lambda call: call.arguments.get(name)


# ---------------------------------------------------------------------------------------------
# Answers
# ---------------------------------------------------------------------------------------------


def _one_sweep_run(call: Call) -> None:
    """Run an agent's function once, with the script's own defaults, instead of a sweep."""
    function = call.arguments.get("function")
    if callable(function):
        function()


def _disabled_comet_experiment(call: Call) -> Any:
    return call.module.Experiment(api_key="disabled", disabled=True)


_HUB = "https://huggingface.co"
_NO_COMMIT = "0" * 40


def _repository_address(call: Call) -> str:
    kind = call.arguments.get("repo_type") or "model"
    prefix = "" if kind == "model" else f"{kind}s/"
    name = str(call.arguments.get("repo_id", ""))
    return f"{_HUB}/{prefix}{name if '/' in name else f'user/{name}'}"


def _repository(call: Call) -> Any:
    return call.module.RepoUrl(_repository_address(call))


def _commit_info(call: Call) -> Any:
    found = sys.modules["huggingface_hub.hf_api"].CommitInfo(
        commit_url=f"{_repository_address(call)}/commit/{_NO_COMMIT}",
        commit_message=str(call.arguments.get("commit_message") or "not uploaded in a trial"),
        commit_description=str(call.arguments.get("commit_description") or ""),
        oid=_NO_COMMIT,
    )
    if call.arguments.get("run_as_future"):
        return call.arguments["self"].run_as_future(lambda: found)
    return found


# ---------------------------------------------------------------------------------------------
# The table
# ---------------------------------------------------------------------------------------------


def _wandb(name: str, answer: Answer, *, module: str = "wandb", note: str = _DISABLED) -> Row:
    return Answered(
        module=module, name=name, answer=answer, source=f"docs.wandb.ai, Python SDK, {name}", note=note.format("wandb")
    )


_WANDB: tuple[Row, ...] = (
    Forced(
        module="wandb",
        name="init",
        values=(("mode", "disabled"),),
        source="docs.wandb.ai, Python SDK, wandb.init(mode)",
        note=_DISABLED.format("wandb"),
        goes_online=_is_online,
    ),
    _wandb("login", _constant(True)),
    _wandb("sweep", _constant("disabled")),
    _wandb("agent", _one_sweep_run),
    *(_wandb(f"Artifact.{it}", _constant(None), note=_NO_UPLOAD) for it in ("save", "link", "delete")),
    *(
        _wandb(name, _constant(None), module="wandb.apis.public", note=_NO_UPLOAD)
        for name in ("Run.upload_file", "Run.update", "Run.save", "Run.delete", "File.delete", "Api.create_project")
    ),
)


def _mlflow(name: str, values: tuple[tuple[str, object], ...], *, on_import: bool = False) -> Row:
    return Forced(
        module="mlflow",
        name=name,
        values=values,
        source=f"mlflow.org/docs, Python API, {name}",
        note=_LOCAL.format("mlflow"),
        goes_online=_is_remote,
        on_import=on_import,
    )


_FOLDER = "{uri}/mlflow"
_MLFLOW: tuple[Row, ...] = (
    # At once, since the script may have set MLFLOW_TRACKING_URI itself before the import.
    _mlflow("set_tracking_uri", (("uri", _FOLDER),), on_import=True),
    _mlflow("set_registry_uri", (("uri", _FOLDER),), on_import=True),
    _mlflow("MlflowClient.__init__", (("tracking_uri", _FOLDER), ("registry_uri", _FOLDER))),
    _mlflow("create_experiment", (("artifact_location", None),)),
    _mlflow("MlflowClient.create_experiment", (("artifact_location", None),)),
    Answered(
        module="mlflow",
        name="login",
        answer=_constant(None),
        source="mlflow.org/docs, Python API, mlflow.login",
        note=_LOCAL.format("mlflow"),
    ),
)

_NEPTUNE: tuple[Row, ...] = (
    *(
        Forced(
            module="neptune",
            name=f"{name}.__init__",
            values=(("mode", "debug"),),
            source="docs.neptune.ai, Connection modes",
            note=_DISABLED.format("neptune"),
            goes_online=_is_online,
            kept=("read-only",),
        )
        for name in ("Run", "Model", "ModelVersion", "Project")
    ),
    Forced(
        module="neptune_scale",
        name="Run.__init__",
        values=(("mode", "disabled"),),
        source="docs.neptune.ai, Run",
        note=_DISABLED.format("neptune_scale"),
        goes_online=_is_online,
    ),
)


def _comet(name: str, answer: Answer) -> Row:
    return Answered(
        module="comet_ml",
        name=name,
        answer=answer,
        source=f"comet.com/docs, Python SDK, comet_ml.{name}",
        note=_DISABLED.format("comet_ml"),
    )


_COMET: tuple[Row, ...] = (
    Forced(
        module="comet_ml",
        name="Experiment.__init__",
        values=(("disabled", True),),
        source="comet.com/docs, Python SDK, Experiment(disabled)",
        note=_DISABLED.format("comet_ml"),
        goes_online=_is_false,
    ),
    _comet("start", _disabled_comet_experiment),
    _comet("login", _constant(None)),
)


def _clearml(name: str, answer: Answer) -> Row:
    return Answered(
        module="clearml",
        name=name,
        answer=answer,
        source=f"clear.ml/docs, SDK, {name}",
        note=_NO_UPLOAD.format("clearml"),
    )


_CLEARML: tuple[Row, ...] = (
    # At once, since Task.init goes online unless it was called before.
    Forced(
        module="clearml",
        name="Task.set_offline",
        values=(("offline_mode", True),),
        source="clear.ml/docs, SDK, Task.set_offline",
        note=_LOCAL.format("clearml"),
        goes_online=_is_false,
        on_import=True,
    ),
    _clearml("Task.execute_remotely", _constant(None)),
    _clearml("Dataset.upload", _constant(None)),
    _clearml("Dataset.finalize", _constant(True)),
    _clearml("Dataset.publish", _constant(True)),
    _clearml("StorageManager.upload_file", _argument("remote_url")),
    _clearml("StorageManager.upload_folder", _argument("remote_url")),
)

_OTHERS: tuple[Row, ...] = (
    Forced(
        module="aim",
        name="Run.__init__",
        values=(("repo", "{folder}/aim"),),
        source="aimstack.readthedocs.io, aim.Run(repo)",
        note=_LOCAL.format("aim"),
        goes_online=_is_remote,
    ),
    Forced(
        module="swanlab",
        name="init",
        values=(("mode", "disabled"),),
        source="docs.swanlab.cn, swanlab.init(mode)",
        note=_DISABLED.format("swanlab"),
        goes_online=_is_online,
    ),
    Answered(
        module="swanlab",
        name="login",
        answer=_constant(True),
        source="docs.swanlab.cn, swanlab.login",
        note=_DISABLED.format("swanlab"),
    ),
    Answered(
        module="swanlab",
        name="sync",
        answer=_constant(None),
        source="docs.swanlab.cn, swanlab.sync",
        note=_NO_UPLOAD.format("swanlab"),
    ),
    Forced(
        module="trackio",
        name="init",
        values=tuple((it, None) for it in ("space_id", "server_url", "dataset_id", "bucket_id", "webhook_url")),
        source="huggingface.co/docs/trackio, trackio.init",
        note=_LOCAL.format("trackio"),
        without_variables=(
            "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_DATASET_ID", "TRACKIO_BUCKET_ID", "TRACKIO_WEBHOOK_URL",
        ),
    ),
    Answered(
        module="trackio",
        name="sync",
        answer=_argument("space_id"),
        source="huggingface.co/docs/trackio, trackio.sync",
        note=_NO_UPLOAD.format("trackio"),
    ),
    Forced(
        module="codecarbon.emissions_tracker",
        name="BaseEmissionsTracker.__init__",
        values=(
            ("save_to_api", False), ("save_to_prometheus", False), ("save_to_logfire", False),
            ("emissions_endpoint", None),
        ),
        source="mlco2.github.io/codecarbon, Parameters",
        note=_DISABLED.format("codecarbon"),
    ),
    Forced(
        module="dvclive",
        name="Live.__init__",
        values=(("save_dvc_exp", False),),
        source="dvc.org/doc/dvclive, Live(save_dvc_exp)",
        note=_LOCAL.format("dvclive"),
    ),
)  # fmt: skip


def _hub(name: str, answer: Answer, *, module: str = "huggingface_hub.hf_api", package: str = "huggingface_hub") -> Row:
    return Answered(
        module=module,
        name=name,
        answer=answer,
        source=f"huggingface.co/docs/{package}, {name}",
        note=_NO_UPLOAD.format(package),
    )


_HUB_COMMITS = ("create_commit", "upload_file", "upload_folder", "delete_file", "delete_files", "delete_folder")
_HUB_OTHERS = (
    "upload_large_folder", "preupload_lfs_files", "create_branch", "create_tag", "create_pull_request",
    "create_discussion", "delete_repo", "delete_branch", "delete_tag", "move_repo", "update_repo_settings",
    "super_squash_history", "permanently_delete_lfs_files", "create_bucket", "delete_bucket", "batch_bucket_files",
    "sync_bucket",
)  # fmt: skip
_HUGGING_FACE: tuple[Row, ...] = (
    _hub("HfApi.create_repo", _repository),
    *(_hub(f"HfApi.{it}", _commit_info) for it in _HUB_COMMITS),
    *(_hub(f"HfApi.{it}", _constant(None)) for it in _HUB_OTHERS),
    _hub("Repository.git_push", _constant(None), module="huggingface_hub.repository"),
    _hub("Repository.push_to_hub", _constant(None), module="huggingface_hub.repository"),
    _hub("RepoCard.push_to_hub", _commit_info, module="huggingface_hub.repocard"),
    _hub("PushToHubMixin.push_to_hub", _commit_info, module="transformers.utils.hub", package="transformers"),
    _hub("Dataset.push_to_hub", _commit_info, module="datasets.arrow_dataset", package="datasets"),
    _hub("DatasetDict.push_to_hub", _commit_info, module="datasets.dataset_dict", package="datasets"),
)

TABLE: tuple[Row, ...] = (*_WANDB, *_MLFLOW, *_NEPTUNE, *_COMET, *_CLEARML, *_OTHERS, *_HUGGING_FACE)
