"""Projects as ``hotlap new`` writes them, started as people start them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from hotlap.source.scaffold.compose import TASKS, Task, compose

LIMIT_SECONDS = 240.0
TINY: dict[Task, list[str]] = {
    "image": ["--width", "8", "--batch-size", "16"],
    "text": ["--width", "32", "--layers", "1", "--batch-size", "8", "--length", "16", "--vocabulary", "256"],
    "lm": ["--width", "32", "--layers", "1", "--batch-size", "8", "--length", "16", "--text-bytes", "20000"],
}
"""Flags that make each task's model and batches small."""

Train = Callable[..., list[str]]


@pytest.fixture(scope="session", params=TASKS)
def task(request: pytest.FixtureRequest) -> Task:
    """Each task in turn."""
    chosen: Task = request.param
    return chosen


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[Task, Path]:
    """The script of every task, in a folder of its own."""
    folder = tmp_path_factory.mktemp("scaffold")
    found: dict[Task, Path] = {}
    for it in TASKS:
        found[it] = folder / it / "train.py"
        found[it].parent.mkdir()
        found[it].write_text(compose(it)["train.py"], encoding="utf-8")
    return found


@pytest.fixture
def train(scripts: dict[Task, Path], tmp_path: Path) -> Train:
    """Run a task's script in an empty folder, with warnings as errors; return the lines that it printed."""

    def run(task: Task, *flags: str, launcher: tuple[str, ...] = (), expect: int = 0) -> list[str]:
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        environment["OMP_NUM_THREADS"] = "1"  # the models are tiny, and tests share the machine
        strict = () if launcher else ("-W", "error")
        done = subprocess.run(
            [sys.executable, *strict, *launcher, str(scripts[task]), *TINY[task], *flags],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        assert done.returncode == expect, done.stderr
        return (done.stdout if expect == 0 else done.stderr).splitlines()

    return run


@pytest.fixture
def modules(scripts: dict[Task, Path]) -> Iterator[dict[Task, ModuleType]]:
    """The scripts as modules, to test their parts, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found: dict[Task, ModuleType] = {}
    for it, path in scripts.items():
        spec = importlib.util.spec_from_file_location(f"scaffold_{it}", path)
        assert spec is not None and spec.loader is not None
        found[it] = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = found[it]
        spec.loader.exec_module(found[it])
    yield found
    torch.set_num_threads(threads)
    for module in found.values():
        del sys.modules[module.__name__]
