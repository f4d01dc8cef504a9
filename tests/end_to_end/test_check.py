"""``hotlap check`` on real launches: a slower script fails, an unchanged one passes, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dispositions
import psutil
import pytest

SOURCE = Path(__file__).parents[2] / "src"
SCRIPT = """\
from pathlib import Path

import torch
from torch import nn

from helper import more_work

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = torch.load("data/numbers.pt")
values, labels = data["values"], data["labels"]
for step in range(20000):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
    more_work(values)
    if step % 10 == 0:
        Path("data/last.txt").write_text(str(step))
        torch.save(model.state_dict(), "model.pt")
"""
NOTHING = "def more_work(values):\n    pass\n"
SLOWER = "def more_work(values):\n    for _ in range(60):\n        (values @ values.T).relu().sum()\n"
PREPARE = """\
import torch
torch.manual_seed(1)
torch.save({"values": torch.randn(256, 64), "labels": torch.randint(0, 10, (256,))}, "data/numbers.pt")
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A committed script with data and outputs that git ignores, in the temporary directory: there no file is protected
    but for being the user's."""
    top = tmp_path / "project"
    (top / "data").mkdir(parents=True)
    (top / "train.py").write_text(SCRIPT)
    (top / "helper.py").write_text(NOTHING)
    (top / ".gitignore").write_text("data/\nmodel.pt\n")
    subprocess.run([sys.executable, "-c", PREPARE], cwd=top, check=True)
    (top / "data" / "last.txt").write_text("mine")
    (tmp_path / "temporary").mkdir()
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "as it was"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=top, check=True)
    return top


def environment(project: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(project.parent / "temporary")}


def state(top: Path) -> dict[str, bytes]:
    return {str(it): it.read_bytes() for it in sorted(top.rglob("*")) if it.is_file()}


def check(project: Path, *words: str) -> tuple[int, dict[str, object]]:
    """The exit code and the answer; nothing of the project may change, and nothing temporary may stay."""
    before = state(project)
    command = [sys.executable, "-m", "hotlap", "check", "--json", "--quiet", "--baseline", "main"]
    command += ["--rounds", "4", "--parity-steps", "60", *words, "train.py"]
    done = subprocess.run(command, cwd=project, env=environment(project), capture_output=True, text=True)
    assert state(project) == before
    assert left_behind(project) == []
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def left_behind(project: Path) -> list[str]:
    folder = project.parent / "temporary"
    return [it.name for it in folder.iterdir() if it.name.startswith("hotlap")]


def part(found: dict[str, object], name: str) -> str:
    of = found[name]
    assert isinstance(of, dict)
    return str(of["verdict"])


def test_an_unchanged_script_does_not_fail(project: Path) -> None:
    code, found = check(project, "--delta", "25%")
    assert code in (0, 3), found["text"]
    assert part(found, "numbers") == "passed"


def test_extra_work_in_a_module_fails(project: Path) -> None:
    (project / "helper.py").write_text(SLOWER)
    code, found = check(project, "--delta", "10%")
    assert (code, part(found, "speed"), part(found, "numbers")) == (1, "failed", "passed"), found["text"]


def test_another_learning_rate_does_not_match(project: Path) -> None:
    (project / "train.py").write_text(SCRIPT.replace("lr=0.05", "lr=0.06"))
    code, found = check(project, "--delta", "25%")
    assert code == 1 and part(found, "numbers") == "failed" and part(found, "speed") != "failed", found["text"]
    assert "learning rate is 0.06 instead of 0.05" in str(found["text"])


def test_a_script_that_no_longer_runs_fails(project: Path) -> None:
    (project / "helper.py").write_text("def more_work(values):\n    raise ValueError('planted')\n")
    code, found = check(project)
    assert (code, part(found, "speed")) == (1, "failed")
    assert "ValueError: planted" in str(found["text"])


def test_a_past_that_takes_modules_from_the_present_is_refused(project: Path) -> None:
    (project / "train.py").write_text(f"import sys; sys.path.insert(0, {str(project)!r})\n{SCRIPT}")
    for words in (["add", "."], ["commit", "-q", "-m", "by an absolute path"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=project, check=True)
    command = [sys.executable, "-m", "hotlap", "check", "--quiet", "--baseline", "main", "train.py"]
    done = subprocess.run(command, cwd=project, env=environment(project), capture_output=True, text=True)
    assert done.returncode == 2
    assert "still imports helper as of now" in done.stderr
    assert left_behind(project) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_whatever_ends_it(project: Path, number: signal.Signals) -> None:
    before = state(project)
    command = [sys.executable, "-m", "hotlap", "check", "--baseline", "main", "train.py"]
    started = subprocess.Popen(
        command,
        cwd=project,
        env=environment(project),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=dispositions.usual,
    )
    with started as process:
        assert process.stderr is not None
        assert any("replicate 1" in line for line in process.stderr)
        time.sleep(4)  # into the replicate: its arms are running
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 3
        process.send_signal(number)
        code = process.wait(timeout=300)
    assert code == (-number if number == signal.SIGKILL else 128 + number)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and (left_behind(project) or any(map(_runs, children))):
        time.sleep(0.1)
    assert left_behind(project) == []
    assert not any(map(_runs, children))
    assert state(project) == before


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
