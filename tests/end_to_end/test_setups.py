"""Ordinary set-ups that once lost a checkpoint or broke: real scripts in real trials, isolated in each mode."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from setting_up import (
    CHECKPOINT,
    MODES,
    REPLACES_ITS_CHECKPOINT,
    Mode,
    Setup,
    command_line,
    interpreter_without,
    make_project,
    output_of,
    seen,
)

from hotlap.errors import ScriptError
from hotlap.records import Completed, Crashed, Stopped

SetUp = Callable[..., Setup]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    found: Mode = request.param
    return found


@pytest.fixture
def set_up(tmp_path: Path, mode: Mode) -> SetUp:
    """Make a project of a script, and a way to start its trials; skips where this machine lacks the mode."""

    def make(script: str, **fields: object) -> Setup:
        made = Setup(make_project(tmp_path / "project", script), tmp_path / "runs", mode, **fields)  # type: ignore[arg-type]
        why = made.unavailable()
        if why:
            pytest.skip(why)
        return made

    return make


# -- set-ups in which hotlap did not start in the script's process ---------------------------------


def test_a_checkpoint_that_is_replaced_is_there_afterwards(set_up: SetUp) -> None:
    setup = set_up(REPLACES_ITS_CHECKPOINT)
    before = seen(setup.project)
    run = setup.launch(steps=1000)
    assert run.ending == Completed(), run.ending
    assert "trained 2" in output_of(run)
    assert seen(setup.project) == before


def test_an_interpreter_without_msgspec_is_refused(set_up: SetUp, tmp_path: Path) -> None:
    setup = set_up(REPLACES_ITS_CHECKPOINT)
    before = seen(setup.project)
    python = interpreter_without(tmp_path / "other", "msgspec")
    with pytest.raises(ScriptError, match=r"lacks what hotlap needs .*: msgspec \(not installed\)"):
        setup.launch(python=python)
    assert seen(setup.project) == before


@pytest.mark.slow
def test_a_sitecustomize_of_the_users_that_raises(set_up: SetUp, tmp_path: Path) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text("raise RuntimeError('broken')\n")
    setup = set_up(REPLACES_ITS_CHECKPOINT, environment={"PYTHONPATH": str(tmp_path / "path")})
    before = seen(setup.project)
    run = setup.launch()
    assert run.ending == Stopped(), run.ending
    assert len(run.steps.wall_seconds) == 12
    assert "broken" in output_of(run)
    assert seen(setup.project) == before


LAUNCHER = """
import os, subprocess, sys
done = subprocess.run([sys.executable, "train.py"], env={**os.environ, "PYTHONPATH": "src"})
sys.exit(done.returncode)
"""


def test_a_launcher_that_replaces_the_path(set_up: SetUp) -> None:
    setup = set_up(REPLACES_ITS_CHECKPOINT.replace("train()", "train(10**6)"))
    (setup.project / "launch.py").write_text(LAUNCHER)
    before = seen(setup.project)
    run = setup.launch("launch.py")
    assert isinstance(run.ending, Stopped), run.ending
    assert run.steps.wall_seconds
    assert seen(setup.project) == before


def test_a_launcher_that_replaces_the_environment(set_up: SetUp) -> None:
    setup = set_up(REPLACES_ITS_CHECKPOINT.replace("train()", "train(10**6)"))
    own = '{name: it for name, it in os.environ.items() if not name.startswith("HOTLAP_")} | '
    (setup.project / "launch.py").write_text(LAUNCHER.replace("env={**os.environ, ", "env=" + own + "{"))
    before = seen(setup.project)
    run = setup.launch("launch.py")
    assert isinstance(run.ending, Crashed), run.ending
    assert "train.py" in run.ending.error and "environment" in run.ending.error, run.ending
    assert seen(setup.project) == before


@pytest.mark.slow
def test_temporary_files_above_the_data(set_up: SetUp, tmp_path: Path) -> None:
    setup = set_up(REPLACES_ITS_CHECKPOINT, environment={"TMPDIR": str(tmp_path)})
    before = seen(setup.project)
    run = setup.launch(steps=1000)
    assert run.ending == Completed(), run.ending
    assert seen(setup.project) == before


# -- orders of imports, and the libraries that people train with -----------------------------------

LOOKS_UP_FIRST = """
import importlib.util
assert importlib.util.find_spec("torch") is not None
assert importlib.util.find_spec("torch.nn") is not None
"""
HAND_WRITTEN = REPLACES_ITS_CHECKPOINT.replace("train()", "train(200)")
FIRST = {
    "looked up": LOOKS_UP_FIRST,
    "transformers": "import transformers\nfrom transformers import Trainer",
    "accelerate": "import accelerate",
    "lightning": "import lightning",
    "a slow start": "import time\ntime.sleep(3)",
    "in a thread": "import threading\nit = threading.Thread(target=lambda: __import__('torch'))\nit.start()\nit.join()",
    "a failed import first": "try:\n    import torch.no_such_part\nexcept ImportError:\n    pass",
}
TRAINER = """
import os
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast, Trainer, TrainingArguments
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
{more}

tokenizer = Tokenizer(WordLevel({{"[UNK]": 0, "[PAD]": 1, "good": 2, "bad": 3}}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = Whitespace()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]")
os.makedirs("out/ck", exist_ok=True)
fast.save_pretrained("out/ck")
tokenizer.save("out/ck/raw.json")
again = PreTrainedTokenizerFast.from_pretrained("out/ck")
rows = [{{**again("good bad good"), "labels": number % 2}} for number in range(64)]
config = BertConfig(
    vocab_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
    max_position_embeddings=8,
)
arguments = TrainingArguments(
    output_dir="out", max_steps=12, per_device_train_batch_size=4, save_steps=4, save_total_limit=2, logging_steps=2,
    report_to=[], use_cpu=True, disable_tqdm=True,
)
trainer = Trainer(
    model=BertForSequenceClassification(config), args=arguments, train_dataset=rows, processing_class=fast
)
trainer.train()
trainer.save_model("ckpt")
print("saved", sorted(os.listdir("ckpt")), sorted(it for it in os.listdir("out") if it.startswith("checkpoint")))
"""
ACCELERATE = """
from accelerate import Accelerator
import torch
torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(128, 4), torch.randn(128, 1))
model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=8))
for x, y in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
accelerator.save_state("ckpt")
import os
print("saved", sorted(os.listdir("ckpt")))
"""


@pytest.mark.parametrize(
    "first", [pytest.param(it, marks=[pytest.mark.slow] if it != "looked up" else []) for it in FIRST]
)
def test_imports_before_torch(set_up: SetUp, first: str) -> None:
    setup = set_up(FIRST[first] + HAND_WRITTEN)
    before = seen(setup.project)
    run = setup.launch()
    assert run.ending == Stopped(), run.ending
    assert len(run.steps.wall_seconds) == 12
    assert seen(setup.project) == before


@pytest.mark.slow
def test_a_trainer_that_saves_its_tokenizer(set_up: SetUp) -> None:
    setup = set_up(TRAINER.format(more=""))
    before = seen(setup.project)
    run = setup.launch(steps=1000)
    assert run.ending == Completed(), run.ending
    assert len(run.steps.wall_seconds) == 12
    assert "saved ['best.pt', 'config.json', 'model.safetensors'" in output_of(run)
    assert "['checkpoint-12', 'checkpoint-8']" in output_of(run)
    assert seen(setup.project) == before


@pytest.mark.slow
def test_accelerate_saves_its_state(set_up: SetUp) -> None:
    setup = set_up(ACCELERATE)
    before = seen(setup.project)
    run = setup.launch(steps=1000)
    assert run.ending == Completed(), run.ending
    assert len(run.steps.wall_seconds) == 16
    assert "'best.pt', 'model.safetensors', 'optimizer.bin'" in output_of(run)
    assert seen(setup.project) == before


ENGINE = """
import torch


class Trainer:
    def __init__(self, config):
        self.config = config

    def fit(self, model, optimizer, loader):
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), self.config.out)
"""
CONFIGURED = """
import dataclasses, json


@dataclasses.dataclass
class Config:
    data: str
    out: str


config = Config(**json.load(open("config.json")))
from engine import Trainer
import numpy, torch
x = torch.from_numpy(numpy.load(config.data))
model = torch.nn.Linear(4, 1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :1]), batch_size=4)
Trainer(config).fit(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
"""


@pytest.mark.slow
def test_a_trainer_in_a_second_file_with_data_elsewhere(set_up: SetUp, tmp_path: Path) -> None:
    setup = set_up(CONFIGURED)
    (setup.project / "engine.py").write_text(ENGINE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    numpy.save(elsewhere / "data.npy", numpy.ones((64, 4), dtype="float32"))
    out = elsewhere / "model.pt"
    out.write_bytes(CHECKPOINT)
    (setup.project / "config.json").write_text(json.dumps({"data": str(elsewhere / "data.npy"), "out": str(out)}))
    before = seen(setup.project), seen(elsewhere)
    run = setup.launch(steps=1000)
    assert run.ending == Completed(), run.ending
    assert len(run.steps.wall_seconds) == 16
    assert str(out) in {it.path for it in run.files}
    assert (seen(setup.project), seen(elsewhere)) == before


# -- several processes -----------------------------------------------------------------------------

DISTRIBUTED = """
import os, sys, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

torch.set_num_threads(1)


def main(rank, world):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        if step % 5 == 0:
            torch.save(model.state_dict(), f"ckpt/rank-{rank}.pt")
            if rank == 0:
                torch.save(model.state_dict(), "ckpt/best.pt")
            dist.barrier()
            read = torch.load("ckpt/best.pt"), torch.load(f"ckpt/rank-{1 - rank}.pt")
            assert all(len(it) == 2 for it in read)
            dist.barrier()
    print(f"rank {rank} has read {sorted(os.listdir('ckpt'))}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
        mp.spawn(main, args=(2,), nprocs=2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("network", ["open", "none"])
def test_torchrun(set_up: SetUp, network: str) -> None:
    setup = set_up(DISTRIBUTED, network=network)
    before = seen(setup.project)
    words = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")
    run = setup.launch(*words, module=True, steps=1000)
    assert run.ending == Completed(), run.ending
    assert run.facts.processes == 2
    for rank in range(2):
        assert f"rank {rank} has read ['best.pt', 'rank-0.pt', 'rank-1.pt']" in output_of(run)
    assert seen(setup.project) == before


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize("network", ["open", "none"])
def test_spawned_ranks(set_up: SetUp, network: str) -> None:
    setup = set_up(DISTRIBUTED, network=network)
    before = seen(setup.project)
    run = setup.launch("train.py", str(_free_port()), steps=1000)
    assert run.ending == Completed(), run.ending
    assert run.facts.processes == 2
    assert seen(setup.project) == before


WORKERS = """
import os, sys
import torch
import torch.multiprocessing as mp

mp.set_sharing_strategy(sys.argv[2])
torch.set_num_threads(1)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        with open("ckpt/read.txt", "a") as file:
            file.write(f"{index}\\n")
        return torch.full((1000,), float(index))


if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Data(), 8, num_workers=2, multiprocessing_context=sys.argv[1])
    model = torch.nn.Linear(1000, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for epoch in range(2):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
        torch.save(model.state_dict(), "ckpt/best.pt")
    print("samples", len(open("ckpt/read.txt").readlines()))
"""


@pytest.mark.parametrize(
    ("start", "sharing"),
    [
        pytest.param("fork", "file_descriptor", marks=pytest.mark.slow),
        pytest.param("fork", "file_system", marks=pytest.mark.slow),
        pytest.param("spawn", "file_descriptor", marks=pytest.mark.slow),
        pytest.param("spawn", "file_system", marks=pytest.mark.slow),
        pytest.param("forkserver", "file_system", marks=pytest.mark.slow),
        pytest.param("forkserver", "file_descriptor", marks=pytest.mark.slow),
    ],
)
def test_workers_of_a_loader(set_up: SetUp, start: str, sharing: str) -> None:
    setup = set_up(WORKERS)
    before, memory = seen(setup.project), _shared_memory()
    run = setup.launch("train.py", start, sharing, steps=1000)
    assert run.ending == Completed(), run.ending
    assert len(run.steps.wall_seconds) == 64
    assert "samples 512" in output_of(run)
    assert seen(setup.project) == before
    if setup.mode == "namespaces":  # elsewhere torch's own helper leaves a file now and then, as in a plain run
        assert _shared_memory() <= memory


def _shared_memory() -> set[str]:
    return {it.name for it in Path("/dev/shm").glob("torch_*")}


# -- the command line ------------------------------------------------------------------------------

PLAN = '[hotlap]\nformat = 1\n[levers.matmul-precision]\nprecision = "high"\n'


@pytest.mark.slow
@pytest.mark.parametrize("first", FIRST)
def test_run_installs_a_lever_whatever_comes_first(tmp_path: Path, first: str) -> None:
    script = f"{FIRST[first]}\nimport torch\nprint('precision', torch.get_float32_matmul_precision())\n"
    project = make_project(tmp_path / "project", script)
    (project / "hotlap.toml").write_text(PLAN)
    code, said = hotlap(project, "run", "train.py")
    assert code == 0 and "precision high" in said, said


@pytest.mark.slow
@pytest.mark.parametrize("fenced", [False, True])
def test_a_profile_leaves_the_checkpoint(tmp_path: Path, fenced: bool) -> None:
    project = make_project(tmp_path / "project", REPLACES_ITS_CHECKPOINT.replace("train()", "train(2000)"))
    before = {it: it.read_bytes() for it in project.rglob("*") if it.is_file()}
    code, said = hotlap(project, "profile", "--full", "--budget", "20s", sys.executable, "train.py", fenced=fenced)
    assert code == 0, said
    assert {it: it.read_bytes() for it in before} == before
    assert {it.name for it in project.iterdir()} == {"train.py", "ckpt", ".hotlap"}
    assert "ckpt/best.pt" in said


@pytest.mark.slow
def test_tune_refuses_an_interpreter_without_msgspec(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", REPLACES_ITS_CHECKPOINT)
    python = interpreter_without(tmp_path / "other", "msgspec")
    before = seen(project)
    code, said = hotlap(project, "tune", "--budget", "20s", "--study", str(tmp_path / "studies"), python, "train.py")
    assert code == 1 and "lacks what hotlap needs" in said and "msgspec" in said and "Traceback" not in said, said
    assert seen(project) == before


FENCED = """
echo 0 > /proc/sys/user/max_user_namespaces
exec setpriv --bounding-set -all --inh-caps -all --ambient-caps -all --securebits +noroot,+noroot_locked "$@"
"""


def hotlap(project: Path, *words: str, fenced: bool = False) -> tuple[int, str]:
    """The real command in a project: its exit code and its output. ``fenced``: where user namespaces are
    forbidden, as in most containers; skips where that cannot be made so."""
    command, environment = command_line(words)
    if fenced:
        prefix = ["unshare", "-Ur", "sh", "-c", FENCED, "sh"]
        if shutil.which("setpriv") is None or subprocess.run([*prefix, "true"], check=False).returncode:
            pytest.skip("user namespaces cannot be forbidden here")
        command = [*prefix, *command]
    done = subprocess.run(
        command,
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    return done.returncode, done.stdout
