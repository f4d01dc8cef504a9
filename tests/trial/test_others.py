"""The load of other processes on a child's cores, and waiting for it to end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from hotlap.machine import control_groups
from hotlap.measure.disturbance import disturbance
from hotlap.records import Assignment, LaunchRequest, Setting, SweepLoader
from hotlap.trial import others, tree
from hotlap.trial.local import LocalExecutor
from hotlap.trial.others import busy_seconds, wait_for_quiet

Assign = Callable[..., Assignment]


class Neighbours:
    """A clock, and other processes that keep two cores busy until a given time."""

    def __init__(self, until: float) -> None:
        self.now = 0.0
        self.until = until

    def busy(self) -> float:
        return 2.0 * min(self.now, self.until)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("until", "waited"), [(0.0, 2.0), (5.0, 7.0), (5.4, 8.0), (1e9, 20.0)])
def test_waiting_ends_when_the_machine_is_quiet_or_time_is_up(until: float, waited: float) -> None:
    there = Neighbours(until)
    wait_for_quiet(20.0, busy=there.busy, clock=lambda: there.now, sleep=there.sleep)
    assert there.now == pytest.approx(waited)


def test_with_no_time_to_wait_nothing_is_measured() -> None:
    there = Neighbours(1e9)
    wait_for_quiet(0.0, busy=there.busy, clock=lambda: there.now, sleep=there.sleep)
    assert there.now == 0.0


def test_a_moment_between_two_jobs_is_not_quiet() -> None:
    there = Neighbours(1e9)
    busy = [0.0, 2.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0]  # one quiet second among busy ones
    wait_for_quiet(20.0, busy=lambda: busy.pop(0), clock=lambda: there.now, sleep=there.sleep)
    assert there.now == 5.0


def test_under_a_quota_only_its_own_group_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore load outside a container that has two of the machine's many cores."""
    (tmp_path / "cpu.stat").write_text("usage_usec 12500000\nuser_usec 1\n")
    monkeypatch.setattr(others, "_quota_group", lambda: tmp_path)
    assert busy_seconds() == 12.5
    (tmp_path / "cpu.stat").unlink()
    (tmp_path / "cpuacct.usage").write_text("3000000000\n")
    assert busy_seconds() == 3.0
    (tmp_path / "cpuacct.usage").write_text("nonsense\n")
    assert busy_seconds() > 0 and control_groups.used_seconds(tmp_path) is None


def test_the_group_of_the_tightest_quota_is_found(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/job/step\n",
        "proc/self/mountinfo": "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/job/cpu.max": "200000 100000\n",
        "sys/fs/cgroup/job/step/cpu.max": "400000 100000\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert control_groups.quota_group(tmp_path) == tmp_path / "sys/fs/cgroup/job"
    (tmp_path / "sys/fs/cgroup/job/cpu.max").write_text("max 100000\n")
    (tmp_path / "sys/fs/cgroup/job/step/cpu.max").unlink()
    assert control_groups.quota_group(tmp_path) is None


@pytest.fixture
def one_core_with_a_busy_process() -> Iterator[psutil.Process]:
    """Restrict this process and its children to one core, which another process keeps busy."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield psutil.Process(burner.pid)
    finally:
        burner.kill()
        burner.wait()
        os.sched_setaffinity(0, allowed)


def test_a_busy_process_next_to_a_real_child_is_detected(
    executor: LocalExecutor, assign: Assign, one_core_with_a_busy_process: psutil.Process
) -> None:
    run = executor.launch(LaunchRequest(assignment=assign("--step-seconds", 0.001), steps=300))
    (block,) = run.blocks
    assert block.other_load > 0.3
    assert disturbance("account", [run], 1) is not None
    waits = tree.waited_seconds([one_core_with_a_busy_process])
    if waits is not None:  # the system reports how long threads waited
        assert max(waits.values()) > 0
        assert block.waited_seconds is not None and block.waited_seconds > 0


def test_a_loader_sweep_reports_the_load_of_others(
    executor: LocalExecutor, tmp_path: Path, assign: Assign, one_core_with_a_busy_process: psutil.Process
) -> None:
    script = tmp_path / "sweep.py"
    script.write_text("import time\nuntil = time.monotonic() + 2.5\nwhile time.monotonic() < until: pass\n")
    sweep = assign(instruments=(SweepLoader(settings=(Setting(lever="loader"),)),))
    sweep = msgspec.structs.replace(sweep, workload=msgspec.structs.replace(sweep.workload, target=str(script)))
    (block,) = executor.launch(LaunchRequest(assignment=sweep, steps=1)).blocks
    assert block.steps == 0 and block.own_cpu_seconds > 0 and block.other_load > 0.2
