"""Projects with a checkpoint in them, and trials of their scripts in a given mode."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from hotlap.errors import HotlapError
from hotlap.records import Assignment, Isolation, LaunchRequest, NetworkMode, Observe, Plan, Run, Workload
from hotlap.trial.isolating import Isolator
from hotlap.trial.local import LocalExecutor

Mode: TypeAlias = Literal["namespaces", "fence"]
MODES: tuple[Mode, ...] = ("namespaces", "fence")
SOURCE = Path(__file__).parents[2] / "src"
CHECKPOINT = b"a month of training"
_LIMIT_SECONDS = 800.0
_LARGEST_DIGESTED_BYTES = 2**26

TRAINS = """
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(steps=30):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
"""
REPLACES_ITS_CHECKPOINT = f"""
import os, shutil
{TRAINS}
if __name__ == "__main__":
    shutil.rmtree("ckpt")
    os.makedirs("ckpt")
    torch.save(model.state_dict(), "ckpt/best.pt")
    train()
    torch.save(model.state_dict(), "ckpt/best.pt")
    print("trained", len(torch.load("ckpt/best.pt")))
"""


def make_project(folder: Path, script: str) -> Path:
    """A folder with ``train.py`` and a checkpoint that was there before."""
    (folder / "ckpt").mkdir(parents=True)
    (folder / "ckpt" / "best.pt").write_bytes(CHECKPOINT)
    (folder / "train.py").write_text(script, encoding="utf-8")
    return folder


def seen(folder: Path) -> dict[str, object]:
    """What is in a folder: kind, mode and content of each entry, but for what Python compiled."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        name = str(path.relative_to(folder))
        if stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST_DIGESTED_BYTES:
            found[name] = (oct(status.st_mode), hashlib.sha256(path.read_bytes()).hexdigest())
        elif stat.S_ISREG(status.st_mode):
            found[name] = (oct(status.st_mode), status.st_size, status.st_mtime_ns)
        else:
            found[name] = (oct(status.st_mode), str(path.readlink()) if path.is_symlink() else "")
    return found


@dataclass(frozen=True, slots=True)
class Setup:
    """How trials of a project are started; ``runs`` is the folder of their runs, outside of the project."""

    project: Path
    runs: Path
    mode: Mode | None
    network: NetworkMode = "open"
    environment: Mapping[str, str] = field(default_factory=dict)

    def launch(
        self,
        *words: str,
        steps: int = 12,
        module: bool = False,
        python: str = sys.executable,
        plan: Plan | None = None,
        observe: bool = False,
    ) -> Run:
        """One trial of ``words`` (default: ``train.py``) in the project."""
        target, *arguments = words or ("train.py",)
        workload = Workload(
            kind="module" if module else "script",
            target=target,
            arguments=tuple(arguments),
            directory=str(self.project),
            python=python,
        )
        assignment = Assignment(
            workload=workload,
            plan=plan or Plan(),
            instruments=(Observe(),) if observe else (),
            startup_limit_seconds=_LIMIT_SECONDS,
            block_limit_seconds=_LIMIT_SECONDS,
        )
        return self._executor().launch(LaunchRequest(assignment=assignment, steps=steps))

    def unavailable(self) -> str:
        """Why trials cannot be isolated in this mode here; empty where they can."""
        isolation = Isolation(mode=self.mode, network=self.network)
        try:
            Isolator(isolation, self.runs, {}).protection  # noqa: B018
        except HotlapError as error:
            return str(error)
        return ""

    def _executor(self) -> LocalExecutor:
        environment = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **self.environment}
        isolation = Isolation(mode=self.mode, network=self.network)
        return LocalExecutor(self.runs, environment=environment, isolation=isolation)


def output_of(run: Run) -> str:
    """What the script printed."""
    return Path(run.output_path).read_text(encoding="utf-8", errors="replace")


def interpreter_without(folder: Path, *packages: str) -> str:
    """A virtual environment of this interpreter that has all of its packages but these."""
    import venv

    venv.create(folder, symlinks=True, with_pip=False)
    (site,) = folder.glob("lib/python3*/site-packages")
    for entry in (it for path in map(Path, sys.path) if path.name == "site-packages" for it in path.iterdir()):
        if entry.suffix == ".pth" or any(_is_of(entry.name, it) for it in (*packages, "_virtualenv")):
            continue
        if not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    return str(folder / "bin" / "python")


def _is_of(name: str, package: str) -> bool:
    return name == package or name.startswith((f"{package}-", f"{package}."))


def command_line(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The real ``hotlap`` with these words, and its environment."""
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH", ""))))
    return [sys.executable, "-m", "hotlap", *words], {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
