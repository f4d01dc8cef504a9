"""``hotlap run --watch`` on real scripts: what it leaves as it was, and the study of runs that end in every way."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import fakes
import msgspec
import psutil
import pytest

from hotlap.experiment.options import Options
from hotlap.machine.facts import machine_facts
from hotlap.plan import setting, to_toml
from hotlap.records import Estimate, Plan, Study
from hotlap.study import create_study, load_study
from hotlap.study.latest import last_study
from hotlap.trial.tree import MARK_VARIABLE

SOURCE = Path(__file__).parents[2] / "src"
TRAIN = """
import os, random, signal, sys, time
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(net.parameters())
seconds, end = float(sys.argv[1]), sys.argv[2]
began, step = time.monotonic(), 0
print("begins", flush=True)
while step < 50 or time.monotonic() - began < seconds:
    loss = net(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step == 50:
        print(loss.item(), torch.rand(1).item(), random.random() < 2, sorted(os.listdir(".")))
        print("to stderr", file=sys.stderr)
print("steps", step, flush=True)
if end == "raise":
    raise ValueError("boom")
if end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if end == "exit":
    os._exit(7)
if end == "wait":
    print("waits", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "hotlap", "run", *words]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "xterm"}


def watched(project: Path, *words: str, code: int = 0) -> tuple[Study, subprocess.CompletedProcess[str]]:
    done = subprocess.run(
        command("--watch", *words), cwd=project, env=environment(), capture_output=True, text=True, timeout=180
    )
    assert done.returncode == code, done.stderr
    return study_of(project), done


def study_of(project: Path) -> Study:
    return load_study(project / ".hotlap" / "watch")


def without_counts(text: str) -> str:
    return re.sub(r"steps \d+", "steps", text).replace("'.hotlap', ", "")


def none_is_left(study: Study, project: Path) -> None:
    """No process of the run is alive, and none of its folders is left."""
    assert study.directory.startswith(str(project))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        alive = [it for it in psutil.process_iter() if _runs_in(it, project)]
        if not alive:
            return
        time.sleep(0.1)
    raise AssertionError(alive)


def _runs_in(process: psutil.Process, project: Path) -> bool:
    try:
        return process.pid != os.getpid() and process.cwd() == str(project) and process.status() != "zombie"
    except psutil.Error:
        return False


def test_a_run_is_what_it_is_without_hotlap(project: Path) -> None:
    plain = subprocess.run(
        [sys.executable, "train.py", "0", "exit"], cwd=project, capture_output=True, text=True, timeout=120
    )
    study, done = watched(project, "train.py", "0", "exit", code=7)
    assert without_counts(done.stdout) == without_counts(plain.stdout)
    assert done.stderr == plain.stderr == "to stderr\n"
    assert sorted(it.name for it in project.iterdir()) == [".hotlap", "train.py"]
    assert study.watch is not None and study.watch.exit_code == 7 and study.status == "finished"


def test_the_study_has_the_account_of_the_run(project: Path) -> None:
    study, done = watched(project, "train.py", "3", "end")
    run = study.watch
    assert run is not None and run.account is not None
    steps = int(re.findall(r"steps (\d+)", done.stdout)[0])
    assert run.steps == steps, "resting counts every step"
    assert 0 < run.timed_steps <= steps
    assert sum(seconds for _, seconds in run.account.phases) == pytest.approx(run.account.wall, rel=1e-6)
    assert run.account.samples_per_step == 4
    assert sum(run.series.steps) == steps
    assert all(it is None or it > 0 for it in run.series.host_bytes) and any(run.series.host_bytes)
    assert any(it is not None for it in run.series.loss)
    assert study.account_before == run.account and study.machine.cores
    assert last_study(project / ".hotlap", also=[project / ".hotlap" / "watch"]).directory.name == study.identifier
    shown = subprocess.run(
        [sys.executable, "-m", "hotlap", "report"],
        cwd=project, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "The script ended with exit code 0; no alarm." in " ".join(shown.stdout.split())


@pytest.mark.parametrize(
    ("end", "code", "said"), [pytest.param("raise", 1, "exit code 1", marks=pytest.mark.slow), ("kill", -9, "SIGKILL")]
)
def test_crashed_and_killed_scripts_leave_a_study(project: Path, end: str, code: int, said: str) -> None:
    study, done = watched(project, "train.py", "1.5", end, code=code)
    assert said in study.status_text and study.watch is not None and study.watch.steps > 0
    assert ("boom" in done.stderr) == (end == "raise")
    none_is_left(study, project)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGUSR1, marks=pytest.mark.slow)]
)
def test_signals_reach_the_script_and_end_both_alike(project: Path, number: signal.Signals) -> None:
    with begun(project) as process:
        process.send_signal(number)
        assert process.wait(60) == -number
    study = study_of(project)
    assert study.status == "interrupted" and study.watch is not None and study.watch.signal == number.name
    assert study.watch.steps > 0
    none_is_left(study, project)


def test_a_killed_watcher_leaves_a_study_and_no_process(project: Path) -> None:
    with begun(project) as process:
        marks = {
            it.environ().get(MARK_VARIABLE) for it in psutil.Process(process.pid).children() if _runs_in(it, project)
        }
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
    study = study_of(project)
    assert study.status == "interrupted" and "killed" in study.status_text
    none_is_left(study, project)
    (folder,) = (Path(it) for it in marks if it)
    deadline = time.monotonic() + 30
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not folder.exists()


def begun(project: Path) -> subprocess.Popen[str]:
    """A run that has taken its steps and waits."""
    process = subprocess.Popen(
        command("--watch", "train.py", "1.5", "wait"),
        cwd=project, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line == "waits\n":
            return process
    raise AssertionError("the script ended")


@pytest.mark.slow
def test_a_taken_port_and_a_missing_folder_are_said_and_the_run_goes_on(project: Path) -> None:
    (project / "file").write_text("")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        study, done = watched(project, "--metrics-port", port, "--tensorboard", "file/x", "train.py", "0", "end")
    assert f"port {port} of 127.0.0.1 cannot be used" in done.stderr and "file/x" in done.stderr
    assert "steps 50" in done.stdout and study.watch is not None and study.watch.exit_code == 0


def test_scalars_and_metrics_of_a_run(project: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    study, done = watched(project, "--metrics-port", "0", "--tensorboard", "runs", "train.py", "3", "end")
    assert "metrics: http://127.0.0.1:" in done.stderr
    events = EventAccumulator(str(project / "runs" / study.identifier))
    events.Reload()
    assert {"loss", "step_seconds", "phases/forward_seconds", "host_bytes"} <= set(events.Tags()["scalars"])
    assert study.watch is not None and events.Scalars("loss")[-1].step == study.watch.steps


def test_the_status_line_is_below_the_output_and_goes_away(project: Path) -> None:
    main, other = pty.openpty()
    process = subprocess.Popen(
        command("--watch", "train.py", "4", "end"),
        cwd=project, env=environment(), stdin=other, stdout=other, stderr=other, start_new_session=True,
    )  # fmt: skip
    os.set_blocking(main, False)
    os.close(other)
    fcntl.ioctl(main, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    shown = b""
    while process.poll() is None or select.select([main], [], [], 0.2)[0]:
        try:
            shown += os.read(main, 65536)
        except (BlockingIOError, OSError):
            time.sleep(0.05)
            if process.poll() is not None:
                break
    os.close(main)
    text = shown.decode()
    assert process.returncode == 0
    assert "\x1b[1;23r" in text and "\x1b[24;1H" in text and "hotlap: step " in text and "per step" in text
    assert text.rindex("\x1b[r") > text.rindex("hotlap: step "), "the region is given back at the end"
    lines = re.sub(r"\x1b7.*?\x1b8(\x1b\[1A)?", "", text, flags=re.DOTALL)
    assert "begins\r\n" in lines and "to stderr\r\n" in lines, "the script's lines are whole"


def test_expected_and_observed_speedup_of_a_plan(project: Path) -> None:
    plan = Plan(settings=(setting("zero-grad-to-none"),))
    workload_study = _verified_study(project, plan)
    (project / "hotlap.toml").write_text(to_toml(plan, study=workload_study.identifier))
    study, _ = watched(project, "train.py", "3", "end")
    run = study.watch
    assert run is not None and run.account is not None and study.plan == plan
    assert study.account_before is None, "it is not the unmodified script's"
    assert run.observed_speedup is not None, run.not_compared
    rate = run.account.samples_per_step / run.account.wall
    assert run.observed_speedup.value == pytest.approx(0.001 * rate) and run.reference == workload_study.identifier


def _verified_study(project: Path, plan: Plan) -> Study:
    verification = fakes.FINISHED.verification
    assert verification is not None
    level = Estimate(value=0.001, low=0.0009, high=0.0011, unit="s")
    with create_study(project / ".hotlap", fakes.WORKLOAD, Options()) as journal:
        study = msgspec.structs.replace(
            fakes.FINISHED,
            identifier=journal.directory.name,
            machine=machine_facts(),
            plan=plan,
            verification=msgspec.structs.replace(verification, candidate=plan, baseline_seconds_per_sample=level),
        )
        journal.save(study)
    return study


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metrics-port", "0", "train.py"], "options of --watch"),
        (["--watch", "--metrics-port", "70000", "train.py"], "no port"),
        (["--watch", "absent.py"], "no script"),
        (["--watch", "--plan", "absent.toml", "train.py"], "absent.toml"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(project: Path, words: list[str], said: str) -> None:
    done = subprocess.run(command(*words), cwd=project, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and said in done.stderr
    assert not (project / ".hotlap").exists()


@pytest.mark.slow
def test_the_study_as_json_has_the_series(project: Path) -> None:
    watched(project, "train.py", "0", "end")
    shown = subprocess.run(
        [sys.executable, "-m", "hotlap", "report", "--json"],
        cwd=project, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert sum(json.loads(shown.stdout)["watch"]["series"]["steps"]) == 50
