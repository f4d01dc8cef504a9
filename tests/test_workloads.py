"""Every known shape of training loop, run with and without hotlap: the account must match the script's own.

The scripts and what is true of them are in the folder ``workloads``; each prints its own count of steps and its own
losses as its last line. Plain runs go on in the background while launches under hotlap go one by one.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hotlap.records import Assignment, Completed, Crashed, LaunchRequest, OutOfMemory, Run, Stopped, TimedOut, Workload
from hotlap.trial.local import LocalExecutor

FOLDER = Path(__file__).parent / "workloads"
PLAIN_LIMIT_SECONDS = 600.0
HANG_SECONDS = 4.0
BEYOND_THE_END = 100_000
GLOO_ABORTS = "terminate called without an active exception"
"""What torch's gloo processes now and then say when they end: a worker thread that is still running while the
interpreter goes away takes the process with it. It happens after the script's last line, with hotlap and without."""
ATTEMPTS = 6


def _load_manifest() -> ModuleType:
    spec = importlib.util.spec_from_file_location("workloads_manifest", FOLDER / "manifest.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


manifest = _load_manifest()
BY_NAME = {it.name: it for it in manifest.ALL}
SOUND = (*manifest.SHAPES, *manifest.TRAPS)
STOPPED_MIDWAY = ("catches-interrupt", "checkpoints", "already-tuned", "torchrun-ddp")
SEEN_SLOW = (
    *("lbfgs", "dqn", "unseeded", "function-train", "gan", "spawned-ddp", "spawned-trainer"),
    *("iterable-stream", "scheduler-constructors", "already-tuned", "bare-except", "catches-interrupt"),
    *("infinite-loader", "short-last-batch", "evaluation-loop", "checkpoints", "module-level"),
    *("gradient-accumulation", "layerwise", "packaged", "torchrun-ddp"),
)
"""Those that take longest of the shapes that others are like."""

FAILURES_SLOW = ("fails-early", "leaves", "asks-input")

STOPPED_MIDWAY_SLOW = (
    *("bare-except", "evaluation-loop", "infinite-loader", "lightning"),
    *("spawned-ddp", "spawned-trainer"),
)


def _named(workload: Any) -> str:
    return str(workload.name)


def _parameters(workloads: Sequence[Any], slow: Sequence[str] = ()) -> list[Any]:
    return [
        pytest.param(it, id=it.name, marks=[pytest.mark.slow] if it.slow or it.name in slow else []) for it in workloads
    ]


def _midway() -> list[Any]:
    return _parameters([BY_NAME[it] for it in (*STOPPED_MIDWAY, *STOPPED_MIDWAY_SLOW)], STOPPED_MIDWAY_SLOW)


# -- running ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plain:
    """The result of a plain run; ``exit_code`` is None where it had to be ended."""

    exit_code: int | None
    line: dict[str, Any]
    errors: str
    files: frozenset[str]


def _workload(it: Any, directory: Path) -> Workload:
    """The command for hotlap; a plain run types the same."""
    script = str(FOLDER / it.folder / it.file)
    home = str(FOLDER / it.folder) if it.folder or it.launcher == "module" else str(directory)
    arguments: tuple[str, ...] = it.arguments
    if it.launcher == "torchrun":
        torchrun = ("--standalone", f"--nproc-per-node={it.processes}", script, *arguments)
        return Workload(
            kind="module",
            target="torch.distributed.run",
            arguments=torchrun,
            directory=home,
            python=sys.executable,
        )
    if it.launcher == "module":
        return Workload(kind="module", target=it.file, arguments=arguments, directory=home, python=sys.executable)
    return Workload(kind="script", target=script, arguments=arguments, directory=home, python=sys.executable)


def _environment() -> dict[str, str]:
    return {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _files(directory: Path) -> frozenset[str]:
    return frozenset(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def _own_line(output: str) -> dict[str, Any]:
    """The one line of JSON that the script printed; empty where it did not get so far."""
    lines = [line[line.index("{") :] for line in output.splitlines() if '{"steps"' in line]
    assert len(lines) <= 1
    return dict(json.loads(lines[0])) if lines else {}


def _run_plainly(it: Any, directory: Path) -> Plain:
    for _ in range(ATTEMPTS):
        plain = _run_plainly_once(it, directory)
        if plain.exit_code == 0 or GLOO_ABORTS not in plain.errors or not plain.line:
            break
    return plain


def _run_plainly_once(it: Any, directory: Path) -> Plain:
    workload = _workload(it, directory)
    target = [workload.target] if workload.kind == "script" else ["-m", workload.target]
    limit = HANG_SECONDS + 15 if it.ending == "hangs" else PLAIN_LIMIT_SECONDS
    try:
        done = subprocess.run(
            [sys.executable, *target, *workload.arguments],
            cwd=workload.directory,
            env=os.environ | _environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return Plain(None, {}, "", frozenset())
    return Plain(done.returncode, _own_line(done.stdout), done.stderr, _files(directory))


@pytest.fixture(scope="session")
def plain_runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Plain]]]:
    """The plain run of every workload that a selected test needs, each done once."""
    wanted: dict[str, None] = {
        _named(it.callspec.params["workload"]): None
        for it in request.session.items
        if isinstance(it, pytest.Function) and it.path == Path(__file__) and hasattr(it, "callspec")
    }
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield {
            name: pool.submit(_run_plainly, BY_NAME[name], tmp_path_factory.mktemp(f"plain-{name}")) for name in wanted
        }
        pool.shutdown(cancel_futures=True)


def _launch(
    it: Any, tmp_path: Path, steps: int, *, block_limit_seconds: float = PLAIN_LIMIT_SECONDS
) -> tuple[Run, Path]:
    """Run under hotlap, with its files apart from the script's working directory."""
    for number in range(ATTEMPTS):
        run, directory = _launch_once(it, tmp_path / str(number), steps, block_limit_seconds)
        if not isinstance(run.ending, Crashed) or GLOO_ABORTS not in run.ending.output_tail:
            break
    return run, directory


def _launch_once(it: Any, tmp_path: Path, steps: int, block_limit_seconds: float) -> tuple[Run, Path]:
    directory = tmp_path / "work"
    directory.mkdir(parents=True)
    executor = LocalExecutor(tmp_path / "study", environment=_environment())
    assignment = Assignment(
        workload=_workload(it, directory),
        step_source="auto",
        startup_limit_seconds=PLAIN_LIMIT_SECONDS,
        block_limit_seconds=block_limit_seconds,
    )
    return executor.launch(LaunchRequest(assignment=assignment, steps=steps)), directory


# -- under hotlap ----------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", _parameters(SOUND, SEEN_SLOW))
def test_hotlap_observes_what_the_script_did(
    workload: Any, plain_runs: dict[str, Future[Plain]], tmp_path: Path
) -> None:
    run, directory = _launch(workload, tmp_path, BEYOND_THE_END)
    assert run.ending == Completed(), run.ending
    assert _files(directory) == frozenset()

    own = _own_line(Path(run.output_path).read_text(encoding="utf-8"))
    plain = plain_runs[workload.name].result().line
    if workload.losses_repeat:
        _assert_same_line(own, plain)
    else:
        assert own["steps"] == plain["steps"]

    assert run.facts.step_source == workload.step_source
    assert run.facts.processes == workload.processes
    steps = len(run.steps.wall_seconds)
    assert steps == workload.expected_steps
    _assert_losses(run, own["losses"], workload)
    _assert_samples(run, own, workload)
    assert all(name in {Path(it.path).name for it in run.files} for name in map(_name, workload.writes))
    assert all(it.redirected for it in run.files if Path(it.path).is_relative_to(directory))


@pytest.mark.parametrize("workload", _midway())
def test_hotlap_ends_it_midway_and_leaves_no_file(
    workload: Any, plain_runs: dict[str, Future[Plain]], tmp_path: Path
) -> None:
    run, directory = _launch(workload, tmp_path, 12)
    assert run.ending == Stopped()
    assert len(run.steps.wall_seconds) == 12
    assert _own_line(Path(run.output_path).read_text(encoding="utf-8")) == {}
    plain = plain_runs[workload.name].result().line["losses"]
    _assert_close(run.steps.loss[:10], plain[:10], workload)
    assert [len(it) for it in run.rank_losses] == ([12] * workload.processes if workload.processes > 1 else [])
    if workload.name == "torchrun-ddp":
        (wrapper,) = run.facts.data_parallel
        assert (wrapper.backend, wrapper.processes, wrapper.gradient_bytes) == ("gloo", 2, 4 * (10 * 24 + 24 + 24 + 1))
    assert _files(directory) == frozenset()


@pytest.mark.parametrize(
    "workload", _parameters([it for it in manifest.FAILURES if it.ending == "failed"], FAILURES_SLOW)
)
def test_a_failing_script_is_a_result(workload: Any, tmp_path: Path) -> None:
    run, _ = _launch(workload, tmp_path, BEYOND_THE_END)
    if workload.name == "out-of-memory":
        assert isinstance(run.ending, OutOfMemory)
    else:
        assert isinstance(run.ending, Crashed)
        assert run.ending.exit_code == workload.exit_code
    assert run.ending.error.startswith(workload.fails_with)
    if workload.name != "leaves":
        assert len(run.steps.wall_seconds) == workload.expected_steps


def test_a_hanging_script_is_given_up(tmp_path: Path) -> None:
    run, _ = _launch(BY_NAME["hang"], tmp_path, BEYOND_THE_END, block_limit_seconds=HANG_SECONDS)
    assert isinstance(run.ending, TimedOut)
    assert run.ending.limit_seconds == HANG_SECONDS


@pytest.mark.parametrize("workload", _parameters([BY_NAME["no-training"], BY_NAME["ends-early"]]))
def test_a_script_may_end_before_anything_is_known(
    workload: Any, plain_runs: dict[str, Future[Plain]], tmp_path: Path
) -> None:
    run, _ = _launch(workload, tmp_path, BEYOND_THE_END)
    assert run.ending == Completed()
    assert len(run.steps.wall_seconds) == workload.expected_steps
    own = _own_line(Path(run.output_path).read_text(encoding="utf-8"))
    assert own == plain_runs[workload.name].result().line


# -- plainly ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", _parameters(SOUND, SEEN_SLOW))
def test_runs_plainly(workload: Any, plain_runs: dict[str, Future[Plain]]) -> None:
    plain = plain_runs[workload.name].result()
    assert plain.exit_code == 0, plain.errors
    assert plain.line["steps"] == workload.expected_steps
    assert len(plain.line["losses"]) == 11
    if not workload.folder and workload.launcher != "module":
        assert plain.files == frozenset(workload.writes)


@pytest.mark.parametrize("workload", _parameters(manifest.FAILURES, FAILURES_SLOW))
def test_fails_plainly(workload: Any, plain_runs: dict[str, Future[Plain]]) -> None:
    plain = plain_runs[workload.name].result()
    if workload.ending == "hangs":
        assert plain.exit_code is None
        return
    assert plain.exit_code == workload.exit_code
    assert plain.errors.strip().rpartition("\n")[2].startswith(workload.fails_with)
    if workload.ending == "completed":
        assert plain.line["steps"] == workload.expected_steps


# -- comparing -------------------------------------------------------------------------------------


def _name(path: str) -> str:
    return Path(path).name


def _assert_same_line(own: dict[str, Any], plain: dict[str, Any]) -> None:
    """The script printed the same under hotlap as without; its globals, arguments and file name are in there too."""
    assert own.keys() == plain.keys()
    for key, value in plain.items():
        if key == "losses":
            assert all(_same(*pair) for pair in zip(own[key], value, strict=True))
        else:
            assert own[key] == value, key


def _same(first: float, second: float) -> bool:
    return first == second or (math.isnan(first) and math.isnan(second))


def _assert_losses(run: Run, own: list[float], workload: Any) -> None:
    """The first ten losses and the last; rows without a number are recorded."""
    assert len(run.steps.loss) == len(run.steps.wall_seconds)
    assert workload.loss_readable == any(it is not None for it in run.steps.loss)
    if not workload.loss_readable:
        return
    _assert_close(run.steps.loss[:10], own[:10], workload)
    if math.isnan(own[-1]):
        assert run.steps.loss[-1] is None
        assert run.steps.not_finite == tuple(range(30, workload.expected_steps))
    else:
        _assert_close(run.steps.loss[-1:], own[-1:], workload)
        assert run.steps.not_finite == ()


def _assert_close(found: Sequence[float | None], own: Sequence[float], workload: Any) -> None:
    expected = [it / workload.loss_divisor for it in own]
    if workload.loss_tolerance:
        assert list(found) == pytest.approx(expected, rel=workload.loss_tolerance)
    else:
        assert list(found) == expected


def _assert_samples(run: Run, own: dict[str, Any], workload: Any) -> None:
    if "samples" in own:
        assert list(run.steps.samples) == own["samples"]
    if workload.samples_per_step is not None:
        first, *others = run.steps.samples
        assert first in (workload.samples_per_step, workload.samples_per_step + workload.samples_ahead)
        assert max(others) == workload.samples_per_step
    if workload.total_samples is not None:
        assert sum(run.steps.samples) == workload.total_samples
