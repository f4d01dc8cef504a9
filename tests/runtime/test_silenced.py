"""Trackers that a script explicitly sends online: nothing arrives at a server, and the script continues as usual.

Most trackers are stand-ins with the signatures of the real ones, whose calls reach a server unless that is
disabled. MLflow, Weights & Biases and huggingface_hub are also tested themselves, where they are installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotlap.runtime.silenced_calls import TABLE

CHILD = Path(__file__).with_name("silenced_child.py")
SOURCES = Path(__file__).parents[2] / "src"


class Server:
    """Count connections to a port of this machine, and answer with an error."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._accepted = 0
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def connections(self) -> int:
        """Connections since the last call. The call itself connects last, so all earlier ones have been accepted."""
        with socket.create_connection(self._socket.getsockname(), timeout=60) as own:
            own.recv(1)
        found, self._accepted = self._accepted - 1, 0
        return found

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._accepted += 1
            with connection, contextlib.suppress(OSError):  # a client may not wait for the answer
                connection.sendall(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


SEND = """
import os, socket

def send():
    host, port = os.environ["SERVER"].removeprefix("http://").split(":")
    socket.create_connection((host, int(port))).close()
"""

WANDB = """
from wandb.sdk import init, login
from wandb.sender import send

class Artifact:
    def save(self, project=None): send()

def agent(sweep_id, function=None, entity=None, project=None, count=None): send()
def sweep(sweep, entity=None, project=None): send(); return "abc"
"""

WANDB_SDK = """
from wandb.sender import send

class Run:
    def __init__(self, mode): self.mode = mode
    def log(self, values): self.mode == "disabled" or send()
    def finish(self): pass

def init(entity=None, project=None, *, mode=None, settings=None):
    mode == "disabled" or send()
    return Run(mode)

def login(key=None, relogin=None): send(); return True
"""

MLFLOW = """
from mlflow import state
from mlflow.state import set_tracking_uri, set_registry_uri, MlflowClient, create_experiment, login
"""

MLFLOW_STATE = """
import contextlib, os
from mlflow.sender import send
uri = None

def set_tracking_uri(uri):
    globals()["uri"] = uri

def set_registry_uri(uri):
    uri.startswith("file:") or send()

def create_experiment(name, artifact_location=None, tags=None):
    return str(artifact_location)

def login(backend="databricks"): send()

class MlflowClient:
    def __init__(self, tracking_uri=None, registry_uri=None):
        self.tracking_uri = tracking_uri or uri or os.environ["MLFLOW_TRACKING_URI"]
        self.tracking_uri.startswith("file:") or send()
    def create_experiment(self, name, artifact_location=None, tags=None):
        return str(artifact_location)
"""

NEPTUNE = """
from neptune.sender import send

class Run:
    def __init__(self, with_id=None, *, project=None, mode=None):
        self.mode = mode
        mode in ("debug", "read-only") or send()

class Model(Run): pass
class ModelVersion(Run): pass
class Project(Run): pass
init_run = Run
init_model = Model
"""

COMET = """
from comet_ml.sender import send

class Experiment:
    def __init__(self, api_key=None, project_name=None, disabled=False, **kwargs):
        self.disabled = disabled
        disabled or send()
    def log_metric(self, name, value): self.disabled or send()

class ExistingExperiment(Experiment):
    def __init__(self, api_key=None, previous_experiment=None, **kwargs):
        super().__init__(api_key, **kwargs)

def start(api_key=None, online=None, mode=None): send(); return Experiment()
def login(api_key=None): send()
"""

CLEARML = """
from clearml.sender import send

class Task:
    _offline_mode = False
    @classmethod
    def set_offline(cls, offline_mode=False): cls._offline_mode = offline_mode
    @classmethod
    def init(cls, project_name=None, task_name=None):
        cls._offline_mode or send()
        return cls()
    def execute_remotely(self, queue_name=None, exit_process=True): send()

class StorageManager:
    @classmethod
    def upload_file(cls, local_file, remote_url, wait_for_upload=True): send(); return remote_url
"""

AIM = """
from aim.sender import send

class Run:
    def __init__(self, run_hash=None, *, repo=None):
        self.repo = repo
        str(repo).startswith("aim:") and send()
"""

SWANLAB = """
from swanlab.sender import send

def init(project=None, mode=None, **kwargs):
    mode == "disabled" or send()
    return mode

def login(api_key=None): send()
"""

TRACKIO = """
import os
from trackio.sender import send

def init(project, name=None, space_id=None, config=None):
    (space_id or os.environ.get("TRACKIO_SPACE_ID")) and send()
    return project
"""

CODECARBON = """
from codecarbon.sender import send

class BaseEmissionsTracker:
    def __init__(self, project_name=None, save_to_api=None, api_key=None):
        save_to_api and send()

class EmissionsTracker(BaseEmissionsTracker):
    pass
"""

DVCLIVE = """
from dvclive.sender import send

class Live:
    def __init__(self, dir="dvclive", save_dvc_exp=True): save_dvc_exp and send()
"""

HUB = """
from huggingface_hub.sender import send

class RepoUrl(str):
    @property
    def repo_id(self): return "/".join(self.split("/")[-2:])

class CommitInfo(str):
    def __new__(cls, commit_url, **others):
        made = super().__new__(cls, commit_url)
        made.__dict__ |= others
        return made

class HfApi:
    def run_as_future(self, fn, *args): return Future(fn(*args))
    def create_repo(self, repo_id, *, repo_type=None, private=None): send(); return RepoUrl(repo_id)
    def create_commit(self, repo_id, operations, *, commit_message): send()
    def upload_file(self, *, path_or_fileobj, path_in_repo, repo_id, repo_type=None, run_as_future=False): send()
    def upload_folder(self, *, repo_id, folder_path, run_as_future=False): send()
    def hf_hub_download(self, repo_id, filename): send(); return filename

class Future:
    def __init__(self, value): self.value = value
    def result(self): return self.value

api = HfApi()
create_repo = api.create_repo
upload_file = api.upload_file
hf_hub_download = api.hf_hub_download
"""

PACKAGES: dict[str, dict[str, str]] = {
    "wandb": {"__init__": WANDB, "sdk": WANDB_SDK},
    "mlflow": {"__init__": MLFLOW, "state": MLFLOW_STATE},
    "neptune": {"__init__": NEPTUNE},
    "comet_ml": {"__init__": COMET},
    "clearml": {"__init__": CLEARML},
    "aim": {"__init__": AIM},
    "swanlab": {"__init__": SWANLAB},
    "trackio": {"__init__": TRACKIO},
    "codecarbon": {
        "__init__": "from codecarbon.emissions_tracker import EmissionsTracker",
        "emissions_tracker": CODECARBON,
    },
    "dvclive": {"__init__": DVCLIVE},
    "huggingface_hub": {"__init__": "", "hf_api": HUB},
}


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    folder = tmp_path / "packages"
    for package, modules in PACKAGES.items():
        (folder / package).mkdir(parents=True)
        for name, source in ({"sender": SEND} | modules).items():
            (folder / package / f"{name}.py").write_text(source)
    return folder


def run(script: str, folder: Path, server: Server, path: Path | None = None, *, silenced: bool = True) -> list[str]:
    """Run the script and return the notes for the report; if it is not silenced, it may fail."""
    environment = {**os.environ, "SERVER": server.url, "PYTHONPATH": os.pathsep.join(
        [*([str(path)] if path else []), str(SOURCES), os.environ.get("PYTHONPATH", "")]
    )}  # fmt: skip
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI"):
        environment.pop(name, None)
    command = [sys.executable, str(CHILD), str(folder), script] if silenced else [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd=folder.parent)
    if not silenced:
        return []
    assert done.returncode == 0, done.stderr
    notes: list[str] = json.loads(done.stdout.splitlines()[-1])
    return notes


ONLINE = {
    "wandb.init": """
import wandb
run = wandb.init(project="p", mode="online")
run.log({"loss": 1.0})
run.finish()
""",
    "wandb.init by settings": """
import wandb
wandb.init("team", "p", settings={"mode": "online"}, mode="online").log({})
""",
    "wandb from within": """
from wandb.sdk import init
import wandb.sdk
init(mode="shared"), wandb.sdk.init(mode="online")
""",
    "wandb.login": "import wandb\nassert wandb.login(key='k') is True",
    "wandb sweeps": """
import wandb
calls = []
wandb.agent(wandb.sweep({}), function=lambda: calls.append(1), count=50)
assert calls == [1]
""",
    "wandb artifacts": "import wandb\nassert wandb.Artifact().save() is None",
    "mlflow.set_tracking_uri": """
import os, mlflow
mlflow.set_tracking_uri(os.environ["SERVER"])
mlflow.MlflowClient()
""",
    "mlflow by a variable of the script's": """
import os
os.environ["MLFLOW_TRACKING_URI"] = os.environ["SERVER"]
import mlflow
mlflow.MlflowClient(), mlflow.set_tracking_uri("http://elsewhere")
""",
    "mlflow.MlflowClient": """
import os, mlflow
mlflow.MlflowClient(tracking_uri=os.environ["SERVER"])
mlflow.MlflowClient(os.environ["SERVER"])
mlflow.set_registry_uri(os.environ["SERVER"])
mlflow.login()
assert mlflow.create_experiment("e", "s3://bucket") == "None"
""",
    "neptune": """
import neptune
assert neptune.init_run(mode="async").mode == "debug"
neptune.init_run(), neptune.Run("RUN-1", mode="sync"), neptune.init_model(mode="async")
assert neptune.init_run(mode="read-only").mode == "read-only"
""",
    "comet_ml": """
import comet_ml
comet_ml.Experiment(api_key="k", disabled=False).log_metric("loss", 1)
comet_ml.ExistingExperiment("k", previous_experiment="e").log_metric("loss", 1)
comet_ml.start(online=True).log_metric("loss", 1)
comet_ml.login()
""",
    "clearml": """
import clearml
clearml.Task.set_offline(False)
clearml.Task.init("p", "t").execute_remotely("queue")
assert clearml.StorageManager.upload_file("a.pt", "s3://b/a.pt") == "s3://b/a.pt"
""",
    "aim": "import aim\nassert aim.Run(repo='aim://host:1').repo.endswith('/kept/aim')",
    "swanlab": "import swanlab\nassert swanlab.init(mode='cloud') == 'disabled'\nswanlab.login('k')",
    "trackio": """
import os, trackio
trackio.init("p", space_id="me/space")
os.environ["TRACKIO_SPACE_ID"] = "me/space"
trackio.init("p")
""",
    "codecarbon": "import codecarbon\ncodecarbon.EmissionsTracker(save_to_api=True)",
    "dvclive": "import dvclive\ndvclive.Live(save_dvc_exp=True)",
    "huggingface_hub": """
from huggingface_hub.hf_api import HfApi, create_repo, upload_file
assert create_repo("me/model").repo_id == "me/model"
assert upload_file(path_or_fileobj=b"", path_in_repo="a", repo_id="me/model").oid == "0" * 40
assert "datasets/me/data" in HfApi().upload_file(
    path_or_fileobj=b"", path_in_repo="a", repo_id="me/data", repo_type="dataset"
)
assert HfApi().upload_folder(repo_id="me/model", folder_path=".", run_as_future=True).result().oid
HfApi().create_commit("me/model", [], commit_message="new weights")
""",
}


@pytest.mark.parametrize("case", ONLINE)
def test_nothing_is_sent_and_the_report_says_so(case: str, tmp_path: Path, stand_ins: Path, server: Server) -> None:
    notes = run(ONLINE[case], tmp_path / "kept", server, stand_ins)
    assert server.connections == 0
    assert notes, "the script requires the network, and there is no note"
    package = case.partition(" ")[0].partition(".")[0]
    assert len(notes) == len(set(notes)) and all(package in note for note in notes)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_stand_ins_send_unless_silenced(package: str, tmp_path: Path, stand_ins: Path, server: Server) -> None:
    """Otherwise the test above could not fail."""
    script = next(it for name, it in ONLINE.items() if name.partition(".")[0] == package)
    run(script, tmp_path / "kept", server, stand_ins, silenced=False)
    assert server.connections > 0


def test_what_was_not_to_go_online_is_not_mentioned(tmp_path: Path, stand_ins: Path, server: Server) -> None:
    script = """
import wandb, mlflow, neptune, trackio, clearml
wandb.init(project="p").log({"loss": 1.0})
wandb.init(mode="offline")
mlflow.set_tracking_uri("runs")
mlflow.MlflowClient("sqlite:///mlflow.db")
neptune.init_run(mode="offline")
trackio.init("p")
clearml.Task.init()
"""
    assert run(script, tmp_path / "kept", server, stand_ins) == []
    assert server.connections == 0


def test_downloads_stay(tmp_path: Path, stand_ins: Path, server: Server) -> None:
    script = "from huggingface_hub.hf_api import hf_hub_download\nassert hf_hub_download('a', 'b') == 'b'"
    assert run(script, tmp_path / "kept", server, stand_ins) == []
    assert server.connections == 1


def test_wrong_arguments_fail_as_they_do_without_us(tmp_path: Path, stand_ins: Path, server: Server) -> None:
    script = """
import wandb
try:
    wandb.init(colour="red")
except TypeError as error:
    assert "colour" in str(error)
else:
    raise SystemExit(1)
"""
    run(script, tmp_path / "kept", server, stand_ins)


def test_every_row_has_a_source_and_occurs_once() -> None:
    assert len({(it.module, it.name) for it in TABLE}) == len(TABLE)
    assert all(it.source.partition(", ")[2] for it in TABLE)


# ---------------------------------------------------------------------------------------------
# The real ones
# ---------------------------------------------------------------------------------------------

REAL = {
    "wandb": """
import os
os.environ["WANDB_BASE_URL"] = os.environ["SERVER"]
import wandb
assert wandb.login(key="0" * 40) is True
with wandb.init(project="p", mode="online", settings=wandb.Settings(base_url=os.environ["SERVER"])) as run:
    run.log({"loss": 1.0})
    wandb.log({"loss": 0.5})
    run.config.update({"lr": 1})
assert run.disabled
""",
    "mlflow": """
import os
os.environ["MLFLOW_TRACKING_URI"] = os.environ["SERVER"]
import mlflow
mlflow.set_tracking_uri(os.environ["SERVER"])
mlflow.set_experiment("e")
with mlflow.start_run() as run:
    mlflow.log_metric("loss", 1.0)
    mlflow.log_dict({"a": 1}, "a.json")
client = mlflow.MlflowClient(tracking_uri=os.environ["SERVER"], registry_uri=os.environ["SERVER"])
assert client.get_run(run.info.run_id).data.metrics == {"loss": 1.0}
assert run.info.artifact_uri.startswith("file:"), run.info.artifact_uri
""",
    "huggingface_hub": """
import os
os.environ["HF_ENDPOINT"] = os.environ["SERVER"]
from pathlib import Path
from huggingface_hub import CommitOperationAdd, HfApi, create_repo, upload_file
assert create_repo("me/model", exist_ok=True).repo_id == "me/model"
assert create_repo("data", repo_type="dataset").repo_type == "dataset"
Path("weights.bin").write_bytes(b"0" * 64)
info = upload_file(path_or_fileobj="weights.bin", path_in_repo="weights.bin", repo_id="me/model")
assert info.repo_url.repo_id == "me/model" and info.oid
api = HfApi(endpoint=os.environ["SERVER"])
assert api.upload_folder(repo_id="me/model", folder_path=".", run_as_future=True).result().oid
api.create_commit("me/model", [CommitOperationAdd("a", b"0")], commit_message="new weights")
""",
}


@pytest.mark.parametrize("package", REAL)
def test_the_real_ones(package: str, tmp_path: Path, server: Server) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    environment = os.environ | {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        notes = run(REAL[package], tmp_path / "kept", server)
    assert server.connections == 0
    assert len(notes) == 1 and package in notes[0]
