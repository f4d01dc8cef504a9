"""Processes that have torch loaded without hotlap are distinguished from those with it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from hotlap.records import Assignment, Workload
from hotlap.trial.command import environment_of
from hotlap.trial.foreign_processes import boot_failures, torch_without_hotlap

MAPS_A_FILE = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file:
    kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print("mapped", flush=True)
time.sleep(100)
"""
TRAINER = "import torch\nprint('loaded', flush=True)\nimport time\ntime.sleep(100)\n"
LAUNCHER = """
import os, subprocess, sys
kept = {name: it for name, it in os.environ.items() if not name.startswith("HOTLAP_")}
sys.exit(subprocess.call([sys.executable, "trainer.py"], env={**kept, "PYTHONPATH": "src"}))
"""
COMPILE_WORKERS = """
from torch._inductor.compile_worker.subproc_pool import SubprocPool
pool = SubprocPool(2)
assert pool.submit(int, "7").result(timeout=200) == 7
print("up", flush=True)
import time
time.sleep(100)
"""

Start = Callable[..., psutil.Process]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process and wait for its first line."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str, **options: object) -> psutil.Process:
        process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]
        started.append(process)
        assert process.stdout is not None and process.stdout.readline()
        return psutil.Process(process.pid)

    yield begin
    for process in started:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.communicate()


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    (tmp_path / "run" / "processes").mkdir(parents=True)
    return tmp_path / "run"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "libtorch_python.so"
    path.write_bytes(b"x" * 4096)
    return path


def mark(run_directory: Path, process: psutil.Process, word: str) -> None:
    (run_directory / "processes" / str(process.pid)).write_text(word, encoding="utf-8")


def test_a_process_that_left_no_mark(start: Start, run_directory: Path, library: Path) -> None:
    stranger, other = start("-c", MAPS_A_FILE, str(library)), start("-c", "print(1, flush=True); input()", stdin=-1)
    found = torch_without_hotlap([stranger, other], run_directory)
    assert [(it.pid, it.booted) for it in found] == [(stranger.pid, False)]
    assert str(library) in found[0].command or found[0].command.endswith("...")


@pytest.mark.parametrize(
    "name", ["libtorch_cpu.so", "libtorchcodec_core4.so", "libtorchaudio.so", "notes about libtorch.txt", "torch"]
)
def test_other_libraries_are_not_torch(start: Start, run_directory: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x" * 4096)
    assert torch_without_hotlap([start("-c", MAPS_A_FILE, str(tmp_path / name))], run_directory) == []


@pytest.mark.parametrize("word", ["torch", "importing", "failed The process was ended."])
def test_a_process_with_hotlap_loaded(start: Start, run_directory: Path, library: Path, word: str) -> None:
    process = start("-c", MAPS_A_FILE, str(library))
    mark(run_directory, process, word)
    assert torch_without_hotlap([process], run_directory) == []


@pytest.mark.parametrize("word", ["booted", ""])
def test_a_booted_process_that_never_announced_torch(
    start: Start, run_directory: Path, library: Path, word: str
) -> None:
    process = start("-c", MAPS_A_FILE, str(library))
    mark(run_directory, process, word)
    assert [it.booted for it in torch_without_hotlap([process], run_directory)] == [True]


def test_a_forked_copy_of_a_process_with_hotlap_loaded(start: Start, run_directory: Path, library: Path) -> None:
    """Cover the time between fork and exec, which can be long on a busy machine."""
    code = MAPS_A_FILE.replace('print("mapped"', 'import ctypes\nctypes.CDLL(None).fork()\nprint("mapped"')
    parent = start("-c", code, str(library))
    (child,) = parent.children()
    assert {it.pid for it in torch_without_hotlap([parent, child], run_directory)} == {parent.pid, child.pid}
    mark(run_directory, parent, "torch")
    assert torch_without_hotlap([parent, child], run_directory) == []


def test_a_program_started_by_a_process_with_hotlap_loaded(start: Start, run_directory: Path, library: Path) -> None:
    code = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', sys.argv[2], sys.argv[1]])\n{MAPS_A_FILE}"
    parent = start("-c", code, str(library), MAPS_A_FILE)
    mark(run_directory, parent, "torch")
    (child,) = parent.children()
    deadline = time.monotonic() + 120
    while not (found := torch_without_hotlap([parent, child], run_directory)):
        assert time.monotonic() < deadline
    assert [it.pid for it in found] == [child.pid]


def test_a_mark_that_is_a_link_is_ignored(start: Start, run_directory: Path, library: Path, tmp_path: Path) -> None:
    process = start("-c", MAPS_A_FILE, str(library))
    (tmp_path / "elsewhere").write_text("torch", encoding="utf-8")
    (run_directory / "processes" / str(process.pid)).symlink_to(tmp_path / "elsewhere")
    assert [it.booted for it in torch_without_hotlap([process], run_directory)] == [False]


def test_the_command_is_one_bounded_line(start: Start, run_directory: Path, library: Path) -> None:
    process = start("-c", MAPS_A_FILE, str(library), "a\nb\x1b[31m" + "c" * 1000)
    (found,) = torch_without_hotlap([process], run_directory)
    assert len(found.command) == 200 and found.command.isprintable()


def test_a_process_that_has_ended(run_directory: Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = psutil.Process(done.pid)
    done.communicate()
    assert torch_without_hotlap([process], run_directory) == []


def test_the_number_inside_a_pid_namespace_counts(start: Start, run_directory: Path, library: Path) -> None:
    """Let process 1 of its own namespace leave its mark as ``1``."""
    inside = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let us make a pid namespace")
    code = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
    outer = start("-c", code, *inside, sys.executable, "-c", MAPS_A_FILE, str(library))
    processes = [outer, *outer.children(recursive=True)]
    (found,) = torch_without_hotlap(processes, run_directory)
    (run_directory / "processes" / "1").write_text("torch", encoding="utf-8")
    assert torch_without_hotlap(processes, run_directory) == []
    assert found.pid != 1


@pytest.fixture
def trial(tmp_path: Path, run_directory: Path) -> dict[str, str]:
    """Return the environment of a trial in ``tmp_path``."""
    workload = Workload(kind="script", target="t.py", directory=str(tmp_path), python=sys.executable)
    assignment = Assignment(workload=workload)
    (run_directory / "assignment.json").write_bytes(msgspec.json.encode(assignment))
    own = {
        "HOTLAP_ASSIGNMENT": str(run_directory / "assignment.json"),
        "HOTLAP_RUN_DIRECTORY": str(run_directory),
        "HOTLAP_SOCKET": str(tmp_path / "socket"),
    }
    return {**environment_of(assignment, own), **own}


def test_a_launcher_that_loses_the_hooks(
    start: Start, tmp_path: Path, run_directory: Path, trial: dict[str, str]
) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER, encoding="utf-8")
    launcher = start("-c", LAUNCHER, cwd=tmp_path, env=trial)
    (trainer,) = launcher.children(recursive=True)
    (found,) = torch_without_hotlap([launcher, trainer], run_directory)
    assert (found.pid, found.booted) == (trainer.pid, False)
    assert found.command.endswith("trainer.py")


@pytest.mark.slow
def test_compile_workers_of_torch_are_not_foreign(
    start: Start, tmp_path: Path, run_directory: Path, trial: dict[str, str]
) -> None:
    """Torch starts the first one with its own ``sys.path`` as PYTHONPATH, and forks the others from it."""
    trainer = start("-c", COMPILE_WORKERS, cwd=tmp_path, env=trial)
    workers = trainer.children(recursive=True)
    assert len(workers) >= 2
    assert any("compile_worker" in word for it in workers for word in it.cmdline())
    assert torch_without_hotlap([trainer, *workers], run_directory) == []


def test_processes_of_a_trial_are_not_foreign(
    start: Start, tmp_path: Path, run_directory: Path, trial: dict[str, str]
) -> None:
    """Start a trainer, a worker forked from it, and a program."""
    code = "import torch, os, subprocess\nsleeper = subprocess.Popen(['sleep', '100'])\nos.fork()\n"
    trainer = start("-c", code + "print('up', flush=True)\nimport time\ntime.sleep(100)\n", cwd=tmp_path, env=trial)
    processes = [trainer, *trainer.children(recursive=True)]
    assert len(processes) == 3
    assert torch_without_hotlap(processes, run_directory) == []


def test_boot_failures_of_processes_are_reported(tmp_path: Path, run_directory: Path, trial: dict[str, str]) -> None:
    assert boot_failures(tmp_path) == ()
    (run_directory / "assignment.json").write_bytes(b"")
    for _ in range(2):
        subprocess.run([sys.executable, "-c", "pass"], env=trial, capture_output=True, check=False)
    (sentence,) = boot_failures(run_directory)
    assert "assignment.json cannot be read" in sentence and os.linesep not in sentence
