"""Runs of MLflow and Weights & Biases: against stand-ins here, and against the real libraries where they are."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import fakes
import msgspec
import pytest

from hotlap.errors import StudyError, UsageError
from hotlap.export.gather import Gathered
from hotlap.export.mlflow import LoggedRun, how_to_open, write_mlflow
from hotlap.export.packages import environment
from hotlap.export.tracked import name_of, tracked
from hotlap.export.wandb import write_wandb


def absent(package: str) -> bool:
    return importlib.util.find_spec(package) is None


# ---------------------------------------------------------------------------------------------
# What they receive
# ---------------------------------------------------------------------------------------------


def test_what_a_tracker_receives(gathered: Gathered) -> None:
    told = tracked(gathered)
    config, summary = dict(told.config), dict(told.summary)
    assert told.name == fakes.FINISHED.identifier
    assert told.note.startswith("3.65x faster (95 % interval 3.58 to 3.72)")
    assert config["command"] == "train.py --epochs 1"
    assert config["plan/loader"] == '{"num_workers": 4, "persistent_workers": true, "pin_memory": true}'
    assert summary["speedup"] == 3.65 and summary["speedup_low"] < 3.65 < summary["speedup_high"]
    assert summary["levers/mixed-precision/speedup"] == 1.62
    steps = {step: dict(row) for step, row in told.series}
    assert list(steps) == [1, 2, 3]
    assert (steps[1]["baseline/loss"], steps[1]["plan/wall_seconds"]) == (1.5, pytest.approx(0.15))
    assert "baseline/loss" not in steps[2]  # it was not finite


@pytest.mark.parametrize(
    ("text", "name"), [("..", ""), ("../up", "_up"), ("a b<c>", "a_b_c_"), ("x" * 99, "x" * 60), ("\x1b[31mred", "red")]
)
def test_names_are_harmless(text: str, name: str) -> None:
    assert name_of(text) == name


@pytest.mark.parametrize("name", sorted(fakes.STUDIES))
def test_every_study_can_be_put_into_words(name: str) -> None:
    study = msgspec.structs.replace(fakes.STUDIES[name], identifier=fakes.HOSTILE_TEXT)
    told = tracked(Gathered(study=study, baseline=study.baseline))
    for key, _ in (*told.config, *told.summary):
        assert all(part == name_of(part) for part in key.split("/")), key
    assert "\x1b" not in repr(told)


# ---------------------------------------------------------------------------------------------
# Stand-ins
# ---------------------------------------------------------------------------------------------


class FakeMlflow(ModuleType):
    """As much of MLflow's client as an export uses; records its arguments."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.uris: list[str] = []
        self.batches: list[dict[str, Any]] = []
        self.experiments: list[str] = []
        self.ended: list[str] = []
        self.variables: dict[str, str | None] = {}
        self.exceptions = SimpleNamespace(MlflowException=type("MlflowException", (Exception,), {}))
        self.entities = SimpleNamespace(
            Metric=lambda key, value, timestamp, step: (key, value, step), Param=lambda key, value: (key, value)
        )
        self.refuses = False

    def MlflowClient(self, tracking_uri: str) -> FakeMlflow:
        self.uris.append(tracking_uri)
        self.variables = {it: os.environ.get(it) for it in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK")}
        return self

    def get_experiment_by_name(self, name: str) -> Any:
        if self.refuses:
            raise self.exceptions.MlflowException("no such place")
        return SimpleNamespace(experiment_id="7") if name in self.experiments else None

    def create_experiment(self, name: str, artifacts: str | None) -> str:
        assert artifacts is None or artifacts.startswith("file:///")
        self.experiments.append(name)
        return "7"

    def create_run(self, experiment: str, tags: dict[str, str]) -> Any:
        self.tags = tags
        return SimpleNamespace(info=SimpleNamespace(run_id="run-1"))

    def log_batch(self, run: str, **batch: Any) -> None:
        assert run == "run-1" and all(len(it) <= 1000 for it in batch.values())
        assert len(batch.get("params", ())) <= 100
        self.batches.append(batch)

    def set_terminated(self, run: str) -> None:
        self.ended.append(run)


@pytest.fixture
def fake_mlflow(monkeypatch: pytest.MonkeyPatch) -> FakeMlflow:
    made = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", made)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    return made


def test_mlflow_is_given_all_of_it_in_a_local_folder(
    gathered: Gathered, tmp_path: Path, fake_mlflow: FakeMlflow
) -> None:
    run = write_mlflow(gathered, tmp_path / "store")
    assert run == LoggedRun("run-1", (tmp_path / "store").as_uri())
    assert how_to_open(run) == f"MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {run.address}"
    assert fake_mlflow.uris == [(tmp_path / "store").as_uri()]
    assert fake_mlflow.variables == {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    told = tracked(gathered)
    metrics = [it for batch in fake_mlflow.batches for it in batch.get("metrics", ())]
    assert ("speedup", 3.65, 0) in metrics and ("baseline/loss", 1.5, 1) in metrics
    assert len(metrics) == len(told.summary) + sum(len(row) for _, row in told.series)
    parameters = dict(it for batch in fake_mlflow.batches for it in batch.get("params", ()))
    assert parameters["cores"] == "16"
    assert (fake_mlflow.experiments, fake_mlflow.ended) == (["hotlap"], ["run-1"])
    write_mlflow(gathered, tmp_path / "store")
    assert fake_mlflow.experiments == ["hotlap"]


def test_a_database_is_written_where_the_installed_mlflow_has_them(
    gathered: Gathered, tmp_path: Path, fake_mlflow: FakeMlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sqlalchemy", "alembic"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    run = write_mlflow(gathered, tmp_path / "store")
    assert fake_mlflow.uris == [run.address] == [f"sqlite:///{tmp_path}/store/mlflow.db"]
    assert (tmp_path / "store").is_dir()
    assert how_to_open(run) == f"mlflow ui --backend-store-uri {run.address}"


def test_mlflow_goes_elsewhere_only_where_the_user_says(
    gathered: Gathered, tmp_path: Path, fake_mlflow: FakeMlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere.invalid")
    write_mlflow(gathered, tmp_path)
    write_mlflow(gathered, tmp_path, tracking_uri="http://localhost:5000", experiment="mine")
    assert fake_mlflow.uris == [tmp_path.as_uri(), "http://localhost:5000"]
    assert fake_mlflow.experiments == ["hotlap", "mine"]


def test_what_mlflow_refuses_is_an_error_for_a_person(
    gathered: Gathered, tmp_path: Path, fake_mlflow: FakeMlflow
) -> None:
    fake_mlflow.refuses = True
    with pytest.raises(StudyError, match="no such place"):
        write_mlflow(gathered, tmp_path)


class FakeWandb(ModuleType):
    """As much of wandb as an export uses; records its arguments."""

    def __init__(self, folder: Path) -> None:
        super().__init__("wandb")
        self.errors = SimpleNamespace(Error=type("Error", (Exception,), {}))
        self.dir = str(folder / "offline-run" / "files")
        self.summary: dict[str, float] = {}
        self.logged: dict[int, dict[str, float]] = {}
        self.finished = False
        self.variables: dict[str, str | None] = {}

    def Settings(self, **settings: object) -> dict[str, object]:
        return settings

    def init(self, **given: Any) -> FakeWandb:
        self.given = given
        names = ("WANDB_MODE", "WANDB_ERROR_REPORTING", "WANDB_DISABLE_CODE")
        self.variables = {it: os.environ.get(it) for it in names}
        if given["project"] == "refused":
            raise self.errors.Error("not logged in")
        return self

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.logged[step] = numbers

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def fake_wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeWandb:
    made = FakeWandb(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", made)
    return made


def test_wandb_stays_offline(gathered: Gathered, tmp_path: Path, fake_wandb: FakeWandb) -> None:
    assert write_wandb(gathered, tmp_path) == tmp_path / "offline-run"
    assert fake_wandb.given["mode"] == "offline" and fake_wandb.given["dir"] == str(tmp_path)
    offline = {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "WANDB_DISABLE_CODE": "true"}
    assert fake_wandb.variables == offline
    assert not [it for it in offline if it in os.environ]
    told = tracked(gathered)
    assert fake_wandb.logged == {step: dict(row) for step, row in told.series}
    assert fake_wandb.summary == dict(told.summary)
    assert fake_wandb.given["config"]["plan/compile"] and fake_wandb.finished


def test_wandb_goes_online_only_on_request(gathered: Gathered, tmp_path: Path, fake_wandb: FakeWandb) -> None:
    write_wandb(gathered, tmp_path, online=True, project="mine")
    assert (fake_wandb.given["mode"], fake_wandb.given["project"]) == ("online", "mine")
    with pytest.raises(StudyError, match="not logged in"):
        write_wandb(gathered, tmp_path, online=True, project="refused")


@pytest.mark.parametrize(("package", "write"), [("mlflow", write_mlflow), ("wandb", write_wandb)])
def test_without_the_library_its_extra_is_named(
    package: str, write: Any, gathered: Gathered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError) as raised:
        write(gathered, tmp_path)
    assert f'pip install "hotlap[{package}]"' in raised.value.remedy


def test_variables_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOTLAP_TEST_A", "before")
    monkeypatch.delenv("HOTLAP_TEST_B", raising=False)
    with pytest.raises(KeyError), environment({"HOTLAP_TEST_A": "during", "HOTLAP_TEST_B": "during"}):
        assert os.environ["HOTLAP_TEST_A"] == os.environ["HOTLAP_TEST_B"] == "during"
        raise KeyError
    assert os.environ["HOTLAP_TEST_A"] == "before" and "HOTLAP_TEST_B" not in os.environ


# ---------------------------------------------------------------------------------------------
# The real libraries
# ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(absent("mlflow"), reason="needs MLflow: pip install 'hotlap[mlflow]'")
@pytest.mark.filterwarnings("ignore")  # warnings of the library's import do not matter
def test_mlflow_reads_back_what_was_written(gathered: Gathered, tmp_path: Path) -> None:
    identifier = write_mlflow(gathered, tmp_path / "store")
    with environment({"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}):
        import mlflow

        client = mlflow.MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
        run = client.get_run(identifier)
        history = client.get_metric_history(identifier, "baseline/loss")
    assert run.data.metrics["speedup"] == 3.65
    assert run.data.params["command"] == "train.py --epochs 1"
    assert [(it.step, it.value) for it in history] == [(1, 1.5), (3, 0.75)]


@pytest.mark.slow
@pytest.mark.skipif(absent("wandb"), reason="needs Weights & Biases: pip install 'hotlap[wandb]'")
@pytest.mark.filterwarnings("ignore")
def test_wandb_keeps_an_offline_run(gathered: Gathered, tmp_path: Path) -> None:
    folder = write_wandb(gathered, tmp_path)
    assert folder.parent == tmp_path / "wandb" and folder.name.startswith("offline-run-")
    (kept,) = folder.glob("run-*.wandb")
    content = kept.read_bytes()
    assert b"baseline/loss" in content and b"levers/loader/speedup" in content
    assert fakes.FINISHED.identifier.encode() in content
