"""Trials on file systems, mounts, disks and accounts as people have them: the checkpoint is there afterwards, and a
script that works plainly works, or hotlap says in a sentence why not."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from accounts import NOBODY, ordinary_user

sys.path.insert(0, str(Path(__file__).parent))

from setting_up import CHECKPOINT, REPLACES_ITS_CHECKPOINT, SOURCE, command_line, make_project

INSIDE = Path(__file__).with_name("setups_inside.py")
_LIMIT_SECONDS = 800.0


def inside(prepare: str, project: Path, runs: Path, mode: str, *, before: tuple[str, ...] = ()) -> dict[str, Any]:
    """One trial in a mount namespace of its own in which the shell ran ``prepare``; skips where that is not allowed.
    The arguments ``before`` precede the command."""
    told = unshared(prepare, [sys.executable, str(INSIDE), str(project), str(runs), mode], before=before)
    assert told.endswith("}\n"), told
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    assert found["same"], found
    if os.geteuid() != 0 and "cannot be isolated on this machine" in found.get("refused", ""):
        pytest.skip(f"in a user namespace of the test's own: {found['refused']}")
    return found


def unshared(prepare: str, words: list[str], *, before: tuple[str, ...] = (), **variables: str) -> str:
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare(1) to prepare mounts with")
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    script = f'set -e\n{prepare}\nexec "$@"'
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **variables}
    if subprocess.run([*unshare, "sh", "-c", f"set -e\n{prepare}"], capture_output=True, check=False).returncode:
        pytest.skip("this cannot be mounted here")
    done = subprocess.run(
        [*unshare, "sh", "-c", script, "sh", *before, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    return done.stderr + done.stdout


# -- file systems ----------------------------------------------------------------------------------

MOUNTS = {
    "tmpfs": "mount -t tmpfs t {project}",
    "a container's": "mount -t tmpfs t {spare}\nmkdir {spare}/lower {spare}/upper {spare}/work\n"
    "mount -t overlay o -o lowerdir={spare}/lower,upperdir={spare}/upper,workdir={spare}/work {project}",
    "ext4": "truncate -s 64M {spare}/image\nmkfs.ext4 -q {spare}/image\nmount -o loop {spare}/image {project}",
}
FILLED = "mkdir {project}/ckpt\ncp {made}/train.py {project}\ncp {made}/ckpt/best.pt {project}/ckpt"


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    make_project(tmp_path / "made", REPLACES_ITS_CHECKPOINT)
    for name in ("project", "spare"):
        (tmp_path / name).mkdir()
    return {name: tmp_path / name for name in ("made", "project", "spare")}


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("tmpfs", "namespaces"),
        pytest.param("a container's", "namespaces", marks=pytest.mark.slow),
        pytest.param("tmpfs", "fence", marks=pytest.mark.slow),
        pytest.param("a container's", "fence", marks=pytest.mark.slow),
        pytest.param("ext4", "namespaces", marks=pytest.mark.slow),
        pytest.param("ext4", "fence", marks=pytest.mark.slow),
    ],
)
def test_a_file_system(places: dict[str, Path], tmp_path: Path, kind: str, mode: str) -> None:
    found = inside(f"{MOUNTS[kind]}\n{FILLED}".format(**places), places["project"], tmp_path / "runs", mode)
    assert found["ending"] == "Completed", found


@pytest.mark.slow
def test_a_file_system_that_can_be_under_no_layer(places: dict[str, Path], tmp_path: Path) -> None:
    """Overlays on top of each other: the kernel allows for two, of which one would be ours."""
    (tmp_path / "between").mkdir()
    once = MOUNTS["a container's"].format(project=tmp_path / "between", spare=places["spare"])
    twice = "mkdir {spare}/upper2 {spare}/work2\n" + (
        "mount -t overlay o2 -o lowerdir={between},upperdir={spare}/upper2,workdir={spare}/work2 {project}"
    )
    prepare = f"{once}\n{twice}\n{FILLED}".format(between=tmp_path / "between", **places)
    found = inside(prepare, places["project"], tmp_path / "runs", "any")
    assert (found["mode"], found["ending"]) == ("fence", "Completed"), found
    assert any(f"({places['project']})" in it for it in found["reasons"])


WRITES_EVERYWHERE = REPLACES_ITS_CHECKPOINT.replace(
    "if __name__ ==",
    """
for path in ("middle/kept", "bound/kept", "closed/kept"):
    try:
        open(path, "w").write("changed")
    except OSError as error:
        print(path, type(error).__name__)
    else:
        print(path, open(path).read())
if __name__ ==""",
)


@pytest.mark.parametrize("mode", ["namespaces", pytest.param("fence", marks=pytest.mark.slow)])
def test_several_mounts(tmp_path: Path, mode: str) -> None:
    project = make_project(tmp_path / "project", WRITES_EVERYWHERE)
    for name in ("middle", "bound", "closed"):
        (project / name).mkdir()
    for name in ("bound", "closed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kept").write_text("kept")
    prepare = f"""
mount -t tmpfs t {project}/middle
echo kept > {project}/middle/kept
mount --bind {tmp_path}/bound {project}/bound
mount --bind {tmp_path}/closed {project}/closed
mount -o remount,bind,ro {project}/closed
"""
    found = inside(prepare, project, tmp_path / "runs", mode)
    assert found["ending"] == "Completed", found
    assert "middle/kept changed" in found["output"] and "bound/kept changed" in found["output"]
    assert "closed/kept changed" not in found["output"]
    assert (tmp_path / "bound" / "kept").read_text() == "kept"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["namespaces", "fence"])
def test_a_link_to_a_project_with_a_strange_name(tmp_path: Path, mode: str) -> None:
    real = tmp_path / "a b,c:d\\e\n=f'\"ä" / "project"
    make_project(real, REPLACES_ITS_CHECKPOINT)
    (tmp_path / "project").symlink_to(real)
    found = inside("", tmp_path / "project", tmp_path / "runs", mode)
    assert found["ending"] == "Completed", found


TALKS = REPLACES_ITS_CHECKPOINT.replace(
    "if __name__ ==",
    """
import socket, sys
with socket.socket(socket.AF_UNIX) as client:
    client.connect("{socket}")
    print("heard", client.recv(5).decode())
open("/dev/shm/{shared}", "a").write("more")
print("shared", open("/dev/shm/{shared}").read())
if __name__ ==""",
)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["namespaces", "fence"])
def test_sockets_and_shared_memory_of_other_programs(tmp_path: Path, mode: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="s-"))
    shared = Path(tempfile.mkstemp(dir="/dev/shm")[1])
    shared.write_text("kept")
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / "s"))
            server.listen()
            threading.Thread(target=_say_hello, args=[server], daemon=True).start()
            script = TALKS.format(socket=folder / "s", shared=shared.name)
            project = make_project(tmp_path / "project", script)
            found = inside("", project, tmp_path / "runs", mode)
            assert found["ending"] == "Completed", found
            assert "heard hello" in found["output"]
        if mode == "namespaces":  # elsewhere shared memory is the machine's
            assert "shared keptmore" in found["output"]
            assert shared.read_text() == "kept"
    finally:
        shared.unlink()
        shutil.rmtree(folder)


def _say_hello(server: socket.socket) -> None:
    with server.accept()[0] as made:
        made.sendall(b"hello")


# -- full disks ------------------------------------------------------------------------------------


# The same without torch, and with more numbers, is in tests/trial/test_broken_disks.py.
@pytest.mark.parametrize(
    "inodes", [pytest.param(3, marks=pytest.mark.slow), 6, pytest.param(8, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("mode", ["namespaces", "fence"])
def test_runs_on_a_disk_without_inodes(tmp_path: Path, mode: str, inodes: int) -> None:
    project = make_project(tmp_path / "project", REPLACES_ITS_CHECKPOINT)
    (tmp_path / "runs").mkdir()
    prepare = f"mount -t tmpfs -o nr_inodes={inodes} t {tmp_path}/runs"
    found = inside(prepare, project, tmp_path / "runs" / "0", mode)
    said = found.get("refused") or found["error"]
    assert "No space left on device" in said and "Free some space there" in said, found


def test_no_room_for_temporary_files_is_reported_in_a_sentence(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", REPLACES_ITS_CHECKPOINT)
    (tmp_path / "full").mkdir()
    words, _ = command_line(["profile", "--budget", "5s", "--study", str(tmp_path / "studies"), "train.py"])
    prepare = f"mount -t tmpfs -o nr_inodes=2 t {tmp_path}/full\ncd {project}"
    said = unshared(prepare, words, TMPDIR=str(tmp_path / "full"))
    assert "hotlap: A disk that hotlap writes to is full: No space left on device." in said, said
    assert "TMPDIR" in said and "Traceback" not in said
    assert (project / "ckpt" / "best.pt").read_bytes() == CHECKPOINT


# -- accounts --------------------------------------------------------------------------------------


@pytest.fixture
def nobodys() -> Iterator[Path]:
    """A folder of an ordinary user's; skips where we cannot act as one, or it could not read our interpreter."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can act as another user")
    ordinary_user("torch")
    folder = Path(tempfile.mkdtemp(prefix="set-up-"))
    folder.chmod(0o755)
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def _as_nobody(*words: str) -> list[str]:
    return ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", *words]


def _given_away(folder: Path, user: int, group: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, group)


HOMES = {"none": ("env", "-u", "HOME", "-u", "XDG_STATE_HOME"), "not there": ("env", "HOME=/nonexistent")}


@pytest.mark.parametrize(
    ("home", "mode"),
    [
        ("not there", "namespaces"),
        pytest.param("none", "namespaces", marks=pytest.mark.slow),
        pytest.param("none", "fence", marks=pytest.mark.slow),
        pytest.param("not there", "fence", marks=pytest.mark.slow),
        pytest.param("a link", "namespaces", marks=pytest.mark.slow),
    ],
)
def test_an_ordinary_user(nobodys: Path, home: str, mode: str) -> None:
    project = make_project(nobodys / "project", REPLACES_ITS_CHECKPOINT)
    (nobodys / "real").mkdir()
    (nobodys / "home").symlink_to(nobodys / "real")
    _given_away(project, NOBODY, NOBODY)
    os.chown(nobodys / "real", NOBODY, NOBODY)
    words = HOMES.get(home, ("env", f"HOME={nobodys}/home"))
    # A user number that has no account, so that without HOME no home is known.
    before = (*words, *_as_nobody())
    found = inside("", project, nobodys / "runs", mode, before=before)
    assert found["ending"] == "Completed", found


def test_a_folder_of_a_team(nobodys: Path) -> None:
    """Files of another user that this one may change, by their group: this user cannot create layers with them."""
    project = make_project(nobodys / "project", REPLACES_ITS_CHECKPOINT)
    _given_away(project, 0, NOBODY)
    for path in (project, *project.rglob("*")):
        path.chmod(path.stat().st_mode | 0o070)
    before = ("env", f"HOME={nobodys}", *_as_nobody())
    found = inside("", project, nobodys / "runs", "any", before=before)
    assert (found["mode"], found["ending"]) == ("fence", "Completed"), found
    assert any("belongs to another user" in it for it in found["reasons"])


def test_something_is_mounted_in_an_ordinary_users_temporary_folder(nobodys: Path) -> None:
    """Then no layer covers that folder as a whole, and what a trial shares with hotlap there must get none itself."""
    project = make_project(nobodys / "project", REPLACES_ITS_CHECKPOINT)
    (nobodys / "t" / "mounted").mkdir(parents=True)
    for folder in (project, nobodys / "t"):
        _given_away(folder, NOBODY, NOBODY)
    before = ("env", f"HOME={nobodys}", f"TMPDIR={nobodys}/t", *_as_nobody())
    prepare = f"mount -t tmpfs t {nobodys}/t/mounted"
    found = inside(prepare, project, nobodys / "runs", "namespaces", before=before)
    assert found.get("ending") == "Completed", found


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["namespaces", "fence"])
def test_root_that_may_not_mount(tmp_path: Path, mode: str) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can give capabilities up")
    project = make_project(tmp_path / "project", REPLACES_ITS_CHECKPOINT)
    before = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
    found = inside("", project, tmp_path / "runs", mode, before=before)
    assert found["ending"] == "Completed", found


# -- large files -----------------------------------------------------------------------------------

CHANGES_A_LARGE_FILE = REPLACES_ITS_CHECKPOINT.replace(
    "if __name__ ==",
    """
import mmap, time
began = time.monotonic()
with open("large.bin", "ab") as file:
    file.write(b"appended")
with open("large.bin", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
    mapped[100:107] = b"changed"
    mapped.flush()
with open("large.bin", "rb") as file:
    file.seek(100)
    print("read", file.read(7).decode())
    file.seek(-8, 2)
    print("read", file.read().decode(), file.tell())
print("seconds", time.monotonic() - began)
if __name__ ==""",
)
_LARGE_BYTES = 300 * 2**20
_COPY_LIMIT_SECONDS = 60.0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["namespaces", "fence"])
def test_a_large_file_that_is_appended_to_and_mapped(tmp_path: Path, mode: str) -> None:
    project = make_project(tmp_path / "project", CHANGES_A_LARGE_FILE)
    block = os.urandom(2**20)
    with (project / "large.bin").open("wb") as file:
        for _ in range(_LARGE_BYTES // len(block)):
            file.write(block)
    found = inside("", project, tmp_path / "runs", mode)
    assert found["ending"] == "Completed", found
    assert "read changed" in found["output"] and f"read appended {_LARGE_BYTES + 8}" in found["output"]
    (seconds,) = [float(it.split()[1]) for it in found["output"].splitlines() if it.startswith("seconds ")]
    assert seconds < _COPY_LIMIT_SECONDS
    with (project / "large.bin").open("rb") as file:
        assert all(file.read(len(block)) == block for _ in range(_LARGE_BYTES // len(block)))
        assert not file.read()
    assert not list((tmp_path / "runs").rglob("large.bin")), "the copy is removed with the run"
