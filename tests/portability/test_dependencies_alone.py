"""Commands that only read need no more than ``pip install hotlap`` brings: neither torch nor numpy."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
STUDY = str(TESTS / "study" / "format-1")
COMMAND = (
    "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]; from hotlap.cli.entry import run; sys.exit(run())"
)
TRACE = '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 5}]}'
SCRIPT = """\
import torch
from torch.utils.data import DataLoader

network, loss_of = torch.nn.Linear(4, 1).cuda(), torch.nn.MSELoss()
optimizer = torch.optim.AdamW(network.parameters())
for x, y in DataLoader(torch.load("data.pt"), batch_size=8):
    loss = loss_of(network(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
READING = {
    "lint": (("lint", "train.py"), 1, "HL201"),
    "rule": (("rule", "HL101"), 0, "HL101"),
    "trace": (("trace", "--full", "trace.json"), 0, "aten::mm"),
    "report": (("report", STUDY), 0, "faster"),
    "findings": (("findings", "no-workers"), 0, "workers"),
    "levers": (("levers", "compile"), 0, "compiled into fused kernels"),
    "diff": (("diff", STUDY, STUDY), 0, "step"),
}


def required() -> list[str]:
    """The names of what hotlap depends on, as this clone says."""
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [name_in(it) for it in project["dependencies"]]


def name_in(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def with_what_they_need(names: list[str]) -> Iterator[str]:
    for name in names:
        yield name
        further = [it for it in metadata.requires(name) or () if "extra ==" not in it]
        yield from with_what_they_need([name_in(it) for it in further if installed(name_in(it))])


def installed(name: str) -> bool:
    return any(metadata.distributions(name=name))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what ``pip install hotlap`` brings, and nothing else."""
    folder = tmp_path_factory.mktemp("packages")
    for name in set(with_what_they_need(required())):
        distribution = metadata.distribution(name)
        tops = {Path(it.parts[0]) for it in distribution.files or () if it.parts[0] != ".."}
        for top in tops:
            link = folder / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    return folder


def hotlap(packages: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line where nothing else is installed, not even as metadata."""
    command = [sys.executable, "-I", "-S", "-c", COMMAND, str(TESTS.parent / "src"), str(packages), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_hotlap_depends_on_neither(packages: Path) -> None:
    assert {"rich", "msgspec"} <= {it.name for it in packages.iterdir()}
    assert not {"numpy", "torch"} & {it.name for it in packages.iterdir()}


@pytest.mark.parametrize("name", READING)
def test_what_reads_needs_nothing_else(name: str, packages: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "trace.json").write_text(TRACE)
    words, code, text = READING[name]
    done = hotlap(packages, tmp_path, *words)
    assert done.returncode == code, done.stderr
    assert text in done.stdout + done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["tune", "lab", "profile", "nan"])
def test_what_runs_a_script_says_what_to_install(command: str, packages: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = hotlap(packages, tmp_path, command, "train.py")
    assert done.returncode not in (0, 1) and "Traceback" not in done.stderr
    assert "numpy" in done.stderr and 'pip install "hotlap[trials]"' in done.stderr


def test_the_extra_all_holds_every_other_that_users_need() -> None:
    extras = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(everything.removeprefix("hotlap[").removesuffix("]").split(","))
    # The engines of NVIDIA's GPUs are gigabytes, and `onnxruntime-gpu` takes the place of `onnxruntime`.
    assert named == set(extras) - {"all", "test", "docs", "dev", "onnx-gpu", "tensorrt"}
