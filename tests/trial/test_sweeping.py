"""The remains of dead runs are removed, and nothing else."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from accounts import NOBODY, ordinary_user

from hotlap.api import local_executor
from hotlap.records import Assignment, LaunchRequest
from hotlap.sandbox import removal
from hotlap.trial import sweeping
from hotlap.trial.local import LocalExecutor
from hotlap.trial.owned_folder import owned_folder
from hotlap.trial.sweeping import disown, own, sweep_leftovers, sweep_temporary_folders

Assign = Callable[..., Assignment]
WaitUntil = Callable[[Callable[[], bool]], bool]

OWNER = """
import sys, time
from pathlib import Path
from hotlap.trial.sweeping import own
own(Path(sys.argv[1]))
print("owned", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Make two runs with their files, and files that must be kept."""
    for name in ("0001", "0002"):
        run = tmp_path / "runs" / name
        for part in sweeping.OF_RUNS:
            (run / part / "home" / "ada").mkdir(parents=True)
            (run / part / "home" / "ada" / "best.pt").write_bytes(b"x" * 1000)
        (run / "output.txt").write_text("step 1\n")
    return tmp_path / "runs"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a temporary directory that replaces all those that are swept."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setattr(sweeping, "_SHORT_TEMPORARY", str(place))
    yield place
    for folder in list(sweeping._owned):
        if folder.is_relative_to(place):
            disown(folder)


def test_only_files_of_dead_runs_are_removed(runs: Path) -> None:
    assert sweep_leftovers(runs) == 2 * len(sweeping.OF_RUNS)
    assert sorted(str(it.relative_to(runs)) for it in runs.rglob("*")) == [
        "0001", "0001/output.txt", "0002", "0002/output.txt",
    ]  # fmt: skip
    assert sweep_leftovers(runs) == 0


def test_folders_without_permissions_are_removed(runs: Path) -> None:
    """Remove folders like those of a mounted overlayfs, and what a script made read-only."""
    work = runs / "0001" / "layers" / "work" / "work"
    work.mkdir(parents=True)
    (work / "inside").write_text("x")
    locked = runs / "0002" / "files" / "home"
    (locked / "deeper").mkdir()
    for folder, mode in ((work, 0o000), (locked, 0o555), (runs / "0002" / "files", 0o500)):
        folder.chmod(mode)
    as_somebody = ordinary_user("hotlap")
    if as_somebody:  # root ignores permissions
        for path in (runs.parent, runs, *runs.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        for path in runs.parents:
            if stat.S_IMODE(path.stat().st_mode) & 0o005 != 0o005 and path.owner() == "root":
                path.chmod(path.stat().st_mode | 0o005)
    code = "import sys; from pathlib import Path; from hotlap.trial.sweeping import sweep_leftovers;"
    code += " print(sweep_leftovers(Path(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(runs)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(runs.parent)},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        **as_somebody,
    )
    assert (done.stdout.strip(), done.stderr) == (str(2 * len(sweeping.OF_RUNS)), "")
    assert not list(runs.glob("*/layers")) + list(runs.glob("*/files"))


def test_links_are_never_followed(runs: Path, tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "best.pt").write_text("a month of training")
    before = treasure.stat().st_mode
    (runs / "0001" / "files" / "link").symlink_to(treasure)
    (runs / "0003").mkdir()
    (runs / "0003" / "files").symlink_to(treasure)
    (runs / "0004").symlink_to(treasure)
    (treasure / "files").mkdir()
    (treasure / "files" / "other.pt").write_text("another month")
    sweep_leftovers(runs)
    assert (treasure / "best.pt").read_text() == "a month of training"
    assert (treasure / "files" / "other.pt").exists()
    assert treasure.stat().st_mode == before
    assert (runs / "0003" / "files").is_symlink()
    assert not (runs / "0001" / "files").exists()


def test_files_that_hotlap_did_not_write_are_kept(runs: Path) -> None:
    (runs / "mine" / "files").mkdir(parents=True)
    (runs / "0005").write_text("a file")
    (runs / "0006").mkdir()
    (runs / "0006" / "files").write_text("a file too")
    os.mkfifo(runs / "0001" / "files" / "pipe")
    sweep_leftovers(runs)
    assert (runs / "mine" / "files").is_dir()
    assert (runs / "0005").read_text() == "a file"
    assert (runs / "0006" / "files").read_text() == "a file too"
    assert not (runs / "0001" / "files").exists()
    assert sweep_leftovers(runs / "no such folder") == 0


def test_folders_of_probe_runs_are_removed_whole(runs: Path) -> None:
    (runs / ".brief-a1b2" / "layers").mkdir(parents=True)
    (runs / ".caches" / "0").mkdir(parents=True)
    sweep_leftovers(runs)
    assert sorted(it.name for it in runs.iterdir()) == [".caches", "0001", "0002"]


def test_sweeping_is_bounded(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "_MOST_ENTRIES", 3)
    assert sweep_leftovers(runs) < 4
    monkeypatch.undo()
    deep = runs / "0001" / "files"
    deep.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(deep, os.O_RDONLY)
    for _ in range(1200):  # deeper than the limits of descriptors and of Python's stack
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    try:
        sweep_leftovers(runs)
        assert not (runs / "0002" / "files").exists()
    finally:
        subprocess.run(["rm", "-rf", str(runs)], check=True)  # which no function of Python can remove


def test_opening_a_study_sweeps_it(runs: Path, temporary: Path) -> None:
    local_executor(runs.parent)
    assert not list(runs.glob("*/files"))


def test_an_interrupted_trial_leaves_no_files(executor: LocalExecutor, assign: Assign, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        run = tmp_path / "runs" / "0001"
        if (run / "diary").exists():
            signal.setitimer(signal.ITIMER_REAL, 0.0)  # cleaning up may take longer than the interval
            (run / "files").mkdir()
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            executor.launch(LaunchRequest(assignment=assign("--fail", "hang", "--fail-at", 5), steps=2))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)
    assert not (tmp_path / "runs" / "0001" / "files").exists()


# -- temporary folders ----------------------------------------------------------------------------


def test_a_folder_is_swept_when_its_owner_is_dead_and_not_before(temporary: Path) -> None:
    folder = temporary / "hotlap-nan-1"
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], env=environment, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"owned\n"
        assert sweep_temporary_folders() == 0
        assert folder.exists()
        process.kill()
    assert sweep_temporary_folders() == 1
    assert not folder.exists()


def test_unmarked_folders_and_our_own_are_kept(temporary: Path, tmp_path: Path) -> None:
    (temporary / "hotlap-without-mark").mkdir()
    (temporary / "other").mkdir()
    (temporary / "other" / sweeping.OWNER).touch()
    marked_by_link = temporary / "hotlap-linked"
    marked_by_link.mkdir()
    (tmp_path / "elsewhere").touch()
    (marked_by_link / sweeping.OWNER).symlink_to(tmp_path / "elsewhere")
    whole_link = tmp_path / "target"
    whole_link.mkdir()
    (whole_link / sweeping.OWNER).touch()
    (temporary / "hotlap-link").symlink_to(whole_link)
    ours = temporary / "hotlap-ours"
    ours.mkdir()
    own(ours)
    before = sorted(temporary.rglob("*"))
    assert sweep_temporary_folders() == 0
    assert sorted(temporary.rglob("*")) == before
    assert whole_link.exists()
    disown(ours)
    assert sweep_temporary_folders() == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that belongs to another user")
def test_the_folder_of_another_user_is_kept(temporary: Path) -> None:
    folder = temporary / "hotlap-theirs"
    folder.mkdir()
    (folder / sweeping.OWNER).touch()
    os.chown(folder, NOBODY, NOBODY)
    os.chown(folder / sweeping.OWNER, NOBODY, NOBODY)
    assert sweep_temporary_folders() == 0
    assert folder.exists()


def test_a_folder_that_cannot_be_locked_is_used_without_a_mark(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    with owned_folder("hotlap-test-") as folder:
        assert folder.is_dir()
        assert not (folder / sweeping.OWNER).exists()
    assert not folder.exists()


def test_processes_that_a_dead_owner_left_are_ended(temporary: Path, wait_until: WaitUntil) -> None:
    folder = temporary / "hotlap-process"
    folder.mkdir()
    (folder / sweeping.OWNER).touch()
    environment = {**os.environ, "HOTLAP_MARK": str(folder)}
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], env=environment)
    try:
        assert wait_until(lambda: Path(f"/proc/{left.pid}/environ").read_bytes().find(b"HOTLAP_MARK=") >= 0)
        assert sweep_temporary_folders() == 1
        assert left.wait(timeout=300) == -signal.SIGKILL
    finally:
        left.kill()
        left.wait()
