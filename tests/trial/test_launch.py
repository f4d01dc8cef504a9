"""A single child: how it is started, what is reported, and every way it can end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hotlap.errors import PlanError, ScriptError, StudyError
from hotlap.levers.host import keep_freed_memory
from hotlap.records import (
    Assignment,
    Completed,
    Crashed,
    LaunchRequest,
    OutOfMemory,
    Plan,
    Run,
    Setting,
    Stopped,
    SweepLoader,
    SwitchLevers,
    TimedOut,
    Workload,
)
from hotlap.trial.command import HOOKS_DIRECTORY, environment_of
from hotlap.trial.local import LocalExecutor

Assign = Callable[..., Assignment]
Diary = Callable[[Run, str], list[dict[str, Any]]]


def launch(executor: LocalExecutor, assignment: Assignment, steps: int = 20, **fields: Any) -> Run:
    return executor.launch(LaunchRequest(assignment=assignment, steps=steps, **fields))


# -- steps and time limits ------------------------------------------------------------------------


def test_a_launch_runs_the_requested_steps_and_stops(executor: LocalExecutor, assign: Assign) -> None:
    run = launch(executor, assign(seed=5), steps=20)
    assert isinstance(run.ending, Stopped)
    assert [(block.steps, block.samples) for block in run.blocks] == [(19, 76)]  # the first was done before Hello
    assert run.blocks[0].wall_seconds >= 19 * 0.001
    assert run.warm_up_blocks == 0
    assert run.seed == 5
    assert 0 < run.startup_seconds < run.wall_seconds
    assert run.host_peak_bytes > 2**20
    assert run.device_peak_bytes == 1000
    assert run.notes == ("rank 0", "all")


def test_one_step_needs_no_block(executor: LocalExecutor, assign: Assign) -> None:
    run = launch(executor, assign(), steps=1)
    assert isinstance(run.ending, Stopped)
    assert run.blocks == ()


def test_a_launch_ends_by_time_after_the_minimum_steps(executor: LocalExecutor, assign: Assign) -> None:
    by_time = launch(executor, assign("--step-seconds", 0.01), steps=10_000, seconds=0.1)
    assert 1 <= by_time.blocks[0].steps <= 11
    by_steps = launch(executor, assign("--step-seconds", 0.01), steps=10_000, seconds=0.01, minimum_steps=16)
    assert by_steps.blocks[0].steps == 15


@pytest.mark.parametrize("ranks", [0, 2])
def test_the_deadline_ends_a_launch_after_any_number_of_steps(
    executor: LocalExecutor, assign: Assign, ranks: int
) -> None:
    run = launch(
        executor, assign("--ranks", ranks, "--step-seconds", 0.02), steps=10_000, minimum_steps=5000, most_seconds=0.01
    )
    assert isinstance(run.ending, Stopped)
    assert sum(block.steps for block in run.blocks) == 1  # it took longer than that to start


def test_a_script_that_ends_early_completes(executor: LocalExecutor, assign: Assign) -> None:
    run = launch(executor, assign("--steps", 5), steps=20)
    assert run.ending == Completed()
    assert run.blocks == ()
    assert run.steps.samples == (0,)  # the report arrived


def test_a_script_without_steps_completes(executor: LocalExecutor, assign: Assign) -> None:
    assert launch(executor, assign("--steps", 0)).ending == Completed()


def test_the_loader_sweep_reports_without_hello(executor: LocalExecutor, assign: Assign, tmp_path: Path) -> None:
    script = tmp_path / "sweep.py"
    script.write_text(
        "import json, os, socket\n"
        "line = socket.socket(socket.AF_UNIX)\n"
        "line.connect(os.environ['HOTLAP_SOCKET'])\n"
        "rates = [{'setting': {'lever': 'loader'}, 'seconds_per_sample': 0.5}]\n"
        "report = {'type': 'report', 'exit_code': None, 'run': {'loader_rates': rates}}\n"
        "line.sendall(json.dumps(report).encode() + b'\\n')\n"
        "os._exit(0)\n"
    )
    sweep = assign(instruments=(SweepLoader(settings=(Setting(lever="loader"),)),))
    sweep = msgspec.structs.replace(sweep, workload=msgspec.structs.replace(sweep.workload, target=str(script)))
    run = launch(executor, sweep)
    assert isinstance(run.ending, Stopped)
    assert [rate.seconds_per_sample for rate in run.loader_rates] == [0.5]


def test_two_ranks_are_one_arm(executor: LocalExecutor, assign: Assign, diary: Diary) -> None:
    run = launch(executor, assign("--ranks", 2, "--step-seconds", 0.005), steps=11)
    assert isinstance(run.ending, Stopped)
    assert run.blocks[0].samples == 2 * 10 * 4
    slowest = max(entry["ended"] - entry["began"] for entry in diary(run, "block"))
    assert run.blocks[0].wall_seconds == pytest.approx(slowest)
    assert run.notes == ("rank 0", "all", "rank 1")
    assert run.device_peak_bytes == 1001


def test_two_ranks_are_not_ended_by_time(executor: LocalExecutor, assign: Assign, diary: Diary) -> None:
    run = launch(executor, assign("--ranks", 2, "--step-seconds", 0.005), steps=10_000, seconds=0.5, minimum_steps=4)
    assert isinstance(run.ending, Stopped)
    orders = [entry["order"] for entry in diary(run, "order")]
    assert {order.get("seconds") for order in orders} == {None}
    assert 3 <= sum(block.steps for block in run.blocks) < 300


# -- how it is started ----------------------------------------------------------------------------


def test_the_command_is_unchanged(executor: LocalExecutor, assign: Assign, diary: Diary, tmp_path: Path) -> None:
    assignment = assign("--steps", 2, "--samples", 7, seed=2**32 + 3)
    run = launch(executor, assignment)
    (seen,) = diary(run, "environment")
    assert seen["arguments"] == [assignment.workload.target, *assignment.workload.arguments]
    assert seen["directory"] == str(tmp_path)
    variables = seen["variables"]
    directory = Path(run.output_path).parent
    assert variables["ADDED"] == "by the executor"
    assert variables["HOTLAP_RUN_DIRECTORY"] == str(directory)
    assert variables["PYTHONHASHSEED"] == "3"
    assert variables["PYTHONDONTWRITEBYTECODE"] == "1"
    assert len(variables["HOTLAP_SOCKET"]) < 100
    assert not Path(variables["HOTLAP_SOCKET"]).parent.exists()  # removed with the child
    written = Path(variables["HOTLAP_ASSIGNMENT"]).read_bytes()
    assert msgspec.json.decode(written, type=Assignment) == assignment


def test_a_module_runs_as_python_m_does(executor: LocalExecutor, assign: Assign, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "train.py").write_text("import sys; print(__name__, sys.argv[1:])")
    workload = Workload(
        kind="module", target="package.train", arguments=("-x",), directory=str(tmp_path), python=sys.executable
    )
    run = launch(executor, Assignment(workload=workload))
    assert run.ending == Completed()
    assert Path(run.output_path).read_text() == "__main__ ['-x']\n"


def test_the_path_begins_with_the_hooks_and_ends_with_hotlap(assign: Assign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("/users/own", "/users/other")))
    monkeypatch.setenv("HOTLAP_PLAN", "left by an outer hotlap")
    environment = environment_of(assign(), {})
    path = environment["PYTHONPATH"].split(os.pathsep)
    assert path[:3] == [str(HOOKS_DIRECTORY), "/users/own", "/users/other"]
    assert all((Path(entry) / "hotlap").is_dir() for entry in path[3:])
    assert "HOTLAP_PLAN" not in environment


def test_levers_may_set_variables(assign: Assign) -> None:
    environment = environment_of(assign(plan=Plan(settings=(Setting(lever="huge-pages"),))), {})
    assert "glibc.malloc.hugetlb=1" in environment["GLIBC_TUNABLES"]
    with pytest.raises(PlanError, match="no-such-lever"):
        environment_of(assign(plan=Plan(settings=(Setting(lever="no-such-lever"),))), {})


def test_a_process_that_switches_keeps_freed_memory_unless_its_allocator_is_the_users(
    assign: Assign, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LD_PRELOAD", *keep_freed_memory.VARIABLES):
        monkeypatch.delenv(name, raising=False)
    switching = msgspec.structs.replace(assign(), instruments=(SwitchLevers(configurations=(Plan(), Plan())),))

    def tuned(assignment: Assignment) -> dict[str, str]:
        environment = environment_of(assignment, {})
        return {it: environment[it] for it in keep_freed_memory.VARIABLES if it in environment}

    assert tuned(assign()) == {} and tuned(switching) == keep_freed_memory.VARIABLES
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "100000")
    assert tuned(switching) == {"MALLOC_TRIM_THRESHOLD_": "100000"}
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libjemalloc.so.2")
    assert tuned(switching) == {}


def test_runs_do_not_share_a_folder(executor: LocalExecutor, assign: Assign) -> None:
    first, second = (launch(executor, assign("--steps", 1)) for _ in range(2))
    assert Path(first.output_path).parent != Path(second.output_path).parent


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": "no-such-script.py"}, "There is no script"),
        ({"target": "."}, "__main__.py"),
        ({"directory": "/no/such/directory"}, "working directory"),
        ({"python": "/no/such/python"}, "no Python"),
    ],
)
def test_a_command_that_cannot_be_started_is_reported_at_once(
    executor: LocalExecutor, assign: Assign, change: dict[str, str], words: str
) -> None:
    assignment = assign()
    workload = msgspec.structs.replace(assignment.workload, **change)
    with pytest.raises(ScriptError, match=words):
        launch(executor, msgspec.structs.replace(assignment, workload=workload))


def test_an_unwritable_study_is_reported_at_once(assign: Assign, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StudyError, match="Nothing can be written"):
        launch(LocalExecutor(tmp_path / "file" / "runs"), assign())


# -- how it ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "exit_code", "error"),
    [
        ("raise", 1, "ValueError: the planted error"),
        ("exit", 3, "exit code 3"),
        ("os-exit", 0, "os._exit, or was replaced by another program, without a report"),
        ("kill", -9, "SIGKILL"),
        ("segmentation-fault", -11, "SIGSEGV"),
        ("survived-memory", 1, "ValueError: something else"),
        ("input", 1, "EOFError"),
    ],
)
@pytest.mark.parametrize("step", [0, 5])
def test_crashes(executor: LocalExecutor, assign: Assign, step: int, how: str, exit_code: int, error: str) -> None:
    run = launch(executor, assign("--fail", how, "--fail-at", step))
    if how == "os-exit" and step == 0:
        assert run.ending == Completed()  # no step had begun
        return
    assert isinstance(run.ending, Crashed)
    assert run.ending.exit_code == exit_code
    assert error in run.ending.error
    assert run.ending.steps_done == step


@pytest.mark.parametrize("how", ["device-memory", "host-memory"])
@pytest.mark.parametrize("step", [0, 5])
def test_running_out_of_memory(executor: LocalExecutor, assign: Assign, step: int, how: str) -> None:
    run = launch(executor, assign("--fail", how, "--fail-at", step))
    assert isinstance(run.ending, OutOfMemory)
    assert "emory" in run.ending.error


@pytest.mark.parametrize(("step", "during"), [(0, "startup"), (5, "block")])
def test_a_hang_times_out(executor: LocalExecutor, assign: Assign, step: int, during: str) -> None:
    limits = {"startup_limit_seconds": 3.0} if step == 0 else {"block_limit_seconds": 0.5}
    began = time.monotonic()
    run = launch(executor, assign("--fail", "hang", "--fail-at", step, "--print", "hello", **limits))
    assert isinstance(run.ending, TimedOut)
    assert run.ending.during == during
    assert run.ending.limit_seconds == next(iter(limits.values()))
    assert run.ending.output_tail == "hello from the script"
    assert time.monotonic() - began < 100


def test_a_rank_that_dies_ends_the_arm(
    executor: LocalExecutor, assign: Assign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotlap.trial.child._OTHERS_LIMIT_SECONDS", 1.0)
    run = launch(executor, assign("--ranks", 2, "--fail", "raise", "--fail-at", 5), steps=50)
    assert isinstance(run.ending, Crashed)
    assert run.ending.error == "ValueError: the planted error"


def test_an_invalid_message_ends_the_child(executor: LocalExecutor, assign: Assign) -> None:
    run = launch(executor, assign("--fail", "nonsense", "--fail-at", 5))
    assert isinstance(run.ending, Crashed)
    assert "cannot be read" in run.ending.error


def test_a_child_that_ignores_end_is_killed(
    executor: LocalExecutor, assign: Assign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotlap.trial.child._REPORT_LIMIT_SECONDS", 0.5)
    run = launch(executor, assign("--deaf"))
    assert isinstance(run.ending, TimedOut)
    assert run.ending.during == "report"


def test_workers_and_detached_processes_are_ended(executor: LocalExecutor, assign: Assign) -> None:
    """Rely on the fixture ``nothing_is_left``, which looks for the worker and the detached process."""
    run = launch(executor, assign("--beat", "--deserter"))
    assert isinstance(run.ending, Stopped)


# -- its output -----------------------------------------------------------------------------------


def test_output_that_is_not_text(executor: LocalExecutor, assign: Assign) -> None:
    run = launch(executor, assign("--print", "garbage", "--fail-at", 0, "--fail", "exit"))
    assert isinstance(run.ending, Crashed)
    assert run.ending.output_tail == "\ufffd\ufffd caf\ufffd red\n100%"
    assert b"\xff\xfe" in Path(run.output_path).read_bytes()  # unchanged


def test_a_flood_of_output_is_bounded(executor: LocalExecutor, assign: Assign) -> None:
    run = launch(executor, assign("--print", "flood", "--fail-at", 2, "--fail", "raise"))
    assert isinstance(run.ending, Crashed)
    assert run.ending.error == "ValueError: the planted error"
    assert len(run.ending.output_tail) <= 4000
    assert Path(run.output_path).stat().st_size <= 64 * 2**20  # it may have been cut in the middle of the output
    assert b"the last words" in Path(run.output_path).read_bytes()


def test_output_is_passed_on_only_on_request(
    executor: LocalExecutor, assign: Assign, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    launch(executor, assign("--print", "hello", "--steps", 1))
    assert capfdbinary.readouterr().err == b""
    launch(executor, assign("--print", "hello", "--steps", 1, show_output=True))
    assert capfdbinary.readouterr().err == b"hello from the script\n"
