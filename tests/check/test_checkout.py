"""Copies of a source tree: what is in them, what they share with the tree, and that the tree stays as it was."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hotlap.errors import HotlapError, UsageError
from hotlap.records import Assignment, Checkout, Source, Workload
from hotlap.runtime.checkouts import imported_from_original
from hotlap.runtime.places import find_places
from hotlap.trial import checkout
from hotlap.trial.checkout import before_and_now, find_commit, is_commit
from hotlap.trial.command import environment_of
from hotlap.trial.git import git as ask_git
from hotlap.trial.owned_folder import owned_folder
from hotlap.trial.source import script_of, source_of

Commit = Callable[..., str]
Git = Callable[..., str]


def workload(directory: Path, target: str = "train.py", *arguments: str, kind: str = "script") -> Workload:
    return Workload(
        kind="module" if kind == "module" else "script",
        target=target,
        arguments=arguments,
        directory=str(directory),
        python=sys.executable,
    )


def both(directory: Path, folder: Path, revision: str = "HEAD", **named: object) -> tuple[Workload, Workload]:
    folder.mkdir()
    asked = named.get("workload")
    work = asked if isinstance(asked, Workload) else workload(directory)
    return before_and_now(find_commit(work, revision), work, folder)


def state(top: Path) -> dict[str, tuple[int, int, str]]:
    """Every file below, with its size, its time, and what it holds."""
    found = {}
    for path in sorted(top.rglob("*")):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            found[str(path)] = (status.st_size, status.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def test_what_was_and_what_is(repository: Path, commit: Commit, tmp_path: Path) -> None:
    commit(train_dot_py="old", helper_dot_py="old", gone_dot_py="old")
    commit(train_dot_py="new")
    (repository / "helper.py").write_text("changed, not committed")
    (repository / "gone.py").unlink()
    before, now = both(repository, tmp_path / "copies", "HEAD~1")
    was, is_now = Path(before.directory), Path(now.directory)
    assert [(was / it).read_text() for it in ("train.py", "helper.py", "gone.py")] == ["old", "old", "old"]
    assert [(is_now / it).read_text() for it in ("train.py", "helper.py")] == ["new", "changed, not committed"]
    assert not (is_now / "gone.py").exists()
    assert before.checkout == Checkout(
        original=str(repository), copy=str(was), revision=ask_git(repository, "rev-parse", "HEAD~1").decode().strip()
    )
    assert now.checkout == Checkout(original=str(repository), copy=str(is_now))
    assert before.target == now.target == "train.py"


def test_the_tree_and_its_repository_stay_as_they_are(repository: Path, commit: Commit, tmp_path: Path) -> None:
    commit(train_dot_py="old", data__a_dot_csv="1")
    commit(train_dot_py="new")
    (repository / "train.py").write_text("newer")
    os.utime(repository / "data" / "a.csv")  # reading the index would refresh it
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    earlier = state(repository)
    both(repository, tmp_path / "copies", "HEAD~1")
    assert source_of(workload(repository)).git_modified
    assert state(repository) == earlier
    assert not (tmp_path / "hooked").exists()
    assert list((repository / ".git").glob("worktrees")) == []


def test_data_outside_of_git_is_reachable(repository: Path, commit: Commit, tmp_path: Path) -> None:
    commit(train_dot_py="old", data__README="of the data", _dot_gitignore="*.bin\n/cache/\n")
    (repository / "data" / "numbers.bin").write_bytes(b"123")
    (repository / "cache" / "deep").mkdir(parents=True)
    (repository / "cache" / "deep" / "x").write_text("x")
    (repository / "notes.txt").write_text("not ignored")
    (repository / "__pycache__").mkdir()
    (repository / "__pycache__" / "train.pyc").write_bytes(b"")
    for it in both(repository, tmp_path / "copies"):
        copy = Path(it.directory)
        assert (copy / "data" / "numbers.bin").read_bytes() == b"123"
        assert (copy / "cache" / "deep" / "x").read_text() == "x"
        assert (copy / "notes.txt").read_text() == "not ignored"
        assert (copy / "data" / "README").read_text() == "of the data"
        assert not (copy / "data").is_symlink() and not (copy / "train.py").is_symlink()
        assert not (copy / "__pycache__").exists() and not (copy / ".git").exists()


def test_links_lead_to_the_same_place(repository: Path, commit: Commit, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "x").write_text("x")
    (repository / "outside").symlink_to("../shared")
    (repository / "inside").symlink_to("train.py")
    commit(train_dot_py="old")
    (repository / "train.py").write_text("new")
    before, now = both(repository, tmp_path / "copies")
    assert [(Path(it.directory) / "outside" / "x").read_text() for it in (before, now)] == ["x", "x"]
    assert [(Path(it.directory) / "inside").read_text() for it in (before, now)] == ["old", "new"]


def test_a_submodule_is_shared(repository: Path, commit: Commit, git: Git, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    (other / "x").write_text("x")
    subprocess.run(["git", "-C", str(other), "add", "x"], check=True)
    subprocess.run(["git", "-C", str(other), "commit", "-q", "-m", "x"], check=True)
    git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "library")
    commit(train_dot_py="old")
    for it in both(repository, tmp_path / "copies"):
        assert (Path(it.directory) / "library" / "x").read_text() == "x"


def test_from_a_folder_of_the_tree(repository: Path, commit: Commit, tmp_path: Path) -> None:
    commit(jobs__train_dot_py="old", jobs__config_dot_yaml="a: 1", top_dot_py="old")
    inside = repository / "jobs"
    for work in (workload(inside), workload(inside, "../top.py"), workload(inside, str(inside / "train.py"))):
        before, _ = both(inside, tmp_path / f"copies-{abs(hash(work.target))}", workload=work)
        assert Path(before.directory).name == "jobs"
        named = Path(before.directory, before.target).resolve()
        assert before.checkout is not None and named.is_relative_to(before.checkout.copy)
        assert named.read_text() == "old"


def test_from_outside_of_the_tree(repository: Path, commit: Commit, tmp_path: Path) -> None:
    commit(train_dot_py="old")
    work = workload(tmp_path, str(repository / "train.py"))
    before, now = both(tmp_path, tmp_path / "copies", workload=work)
    assert before.directory == now.directory == str(tmp_path)
    assert Path(before.target).read_text() == "old" and not Path(before.target).is_relative_to(repository)


def test_from_a_folder_that_git_does_not_track(repository: Path, commit: Commit, tmp_path: Path) -> None:
    """It is a link in the copies; what is above it must not be looked for above the folder that it leads to."""
    commit(train_dot_py="old")
    (repository / "scratch").mkdir()
    (repository / "scratch" / "x").write_text("x")
    work = workload(repository / "scratch", "../train.py")
    before, now = both(repository, tmp_path / "copies", workload=work)
    (repository / "train.py").write_text("newer")
    assert Path(before.directory, before.target).read_text() == Path(now.directory, now.target).read_text() == "old"


def test_a_launchers_script(repository: Path, commit: Commit, tmp_path: Path) -> None:
    commit(train_dot_py="old")
    words = ("--nproc-per-node", "2", str(repository / "train.py"), "--data", str(repository / "data"))
    work = workload(repository, "torch.distributed.run", *words, kind="module")
    assert script_of(work) == repository / "train.py"
    before, _ = both(repository, tmp_path / "copies", workload=work)
    assert before.arguments[2] == f"{before.directory}/train.py"
    assert before.arguments[4] == str(repository / "data"), "data that is named by an absolute path is the same data"


@pytest.mark.parametrize(
    ("target", "revision", "says"),
    [
        ("new.py", "HEAD~1", "there is no new.py"),
        ("train.py", "nowhere", "There is no git revision 'nowhere'"),
        ("train.py", "--help", "There is no git revision '--help'"),
        ("train.py", "HEAD:train.py", "There is no git revision"),
        ("train.py", "HEAD~1\n", "There is no git revision"),
        ("/usr/bin/env", "HEAD", "in no git work tree"),
        ("untracked.py", "HEAD", "there is no untracked.py that git tracks"),
    ],
)
def test_what_cannot_be_compared(
    repository: Path, commit: Commit, tmp_path: Path, target: str, revision: str, says: str
) -> None:
    commit(train_dot_py="old")
    commit(new_dot_py="new")
    (repository / "untracked.py").write_text("here")
    work = workload(repository, target)
    with pytest.raises(UsageError, match=says):
        both(repository, tmp_path / "copies", revision, workload=work)


def test_a_shallow_clone_says_what_is_missing(
    repository: Path, commit: Commit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(train_dot_py="old")
    commit(train_dot_py="new")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{repository}", str(clone)], check=True)
    with pytest.raises(UsageError) as caught:
        find_commit(workload(clone), "HEAD~1")
    assert "fetch-depth: 0" in caught.value.remedy


def test_without_git(repository: Path, commit: Commit, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(train_dot_py="old")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="git cannot be run"):
        find_commit(workload(repository), "HEAD")
    assert not is_commit(repository, "HEAD")
    assert source_of(workload(repository)).git_revision == ""


def test_a_hooks_variables_do_not_lead_astray(
    repository: Path, commit: Commit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = commit(train_dot_py="old")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "another"))
    assert find_commit(workload(repository), "HEAD").commit == made


def test_a_full_disk_is_reported(
    repository: Path, commit: Commit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(train_dot_py="old" * 1000)
    monkeypatch.setattr(checkout.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 100}))
    with pytest.raises(HotlapError, match="need"):
        both(repository, tmp_path / "copies")


# -- modules ----------------------------------------------------------------------------------------


def test_modules_come_from_the_copy(
    repository: Path, commit: Commit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that PYTHONPATH names, or that are installed in place."""
    commit(train_dot_py="old", src__package_dot_py="old", lib__other_dot_py="old")
    monkeypatch.setenv("PYTHONPATH", f"{repository}/src{os.pathsep}relative{os.pathsep}/elsewhere")
    monkeypatch.setattr(sys, "path", [*sys.path, str(repository / "lib")])
    before, now = both(repository, tmp_path / "copies")
    for it in (before, now):
        path = environment_of(Assignment(workload=it), {})["PYTHONPATH"].split(os.pathsep)
        assert path[1:5] == [f"{it.directory}/src", "relative", "/elsewhere", f"{it.directory}/lib"]
    assert str(repository / "src") in environment_of(Assignment(workload=workload(repository)), {})["PYTHONPATH"]


def test_a_module_from_the_tree_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, copy = tmp_path / "tree", tmp_path / "tree" / "tmp" / "copy"
    for name, file in {
        "theirs": tree / "theirs.py",
        "copied": copy / "copied.py",
        "installed": tree / ".venv" / "lib" / "site-packages" / "installed.py",
        "standard": tree / "env" / "lib" / "standard.py",
        "elsewhere": tmp_path / "elsewhere.py",
    }.items():
        module = type(sys)(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "prefix", str(tree / "env"))
    then = Checkout(original=str(tree), copy=str(copy), revision="abc")
    assert imported_from_original(then) == ("theirs",)
    assert imported_from_original(Checkout(original=str(tree), copy=str(copy))) == ()
    assert imported_from_original(None) == ()


def test_both_trees_are_protected_wherever_they_lie(tmp_path: Path) -> None:
    """The temporary directory holds nothing else."""
    tree, copy = tmp_path / "tree", tmp_path / "copy"
    roots = find_places((), {}, (tree, copy)).roots
    assert roots[str(tree)] and roots[str(copy)]
    assert not find_places((), {}).roots[tempfile.gettempdir()]


# -- the source's state -----------------------------------------------------------------------------


def test_the_state_of_the_source(repository: Path, commit: Commit) -> None:
    (repository / "train.py").write_text("old")
    empty = source_of(workload(repository))
    assert (empty.git_revision, len(empty.script_sha256)) == ("", 64)
    made = commit(train_dot_py="old")
    assert source_of(workload(repository)) == Source(
        git_revision=made, git_modified=False, script_sha256=hashlib.sha256(b"old").hexdigest()
    )
    (repository / "data.txt").write_text("not tracked")
    assert source_of(workload(repository)).git_modified is False
    (repository / "train.py").write_text("new")
    assert source_of(workload(repository)).git_modified is True


def test_nothing_about_the_source_can_fail(tmp_path: Path) -> None:
    for target in ("nothing.py", "", "\0", "a" * 5000):
        assert source_of(workload(tmp_path / "nowhere", target)) == Source()
    (tmp_path / "train").mkdir()
    os.mkfifo(tmp_path / "train" / "__main__.py")
    assert source_of(workload(tmp_path, "train")).script_sha256 == ""


# -- folders ----------------------------------------------------------------------------------------


def test_an_owned_folder_is_gone_whatever_happens() -> None:
    with pytest.raises(KeyboardInterrupt), owned_folder("hotlap-test-") as folder:
        (folder / "x").write_text("x")
        raise KeyboardInterrupt
    assert not folder.exists()


def test_an_owned_folder_is_gone_after_a_kill() -> None:
    program = (
        "import time; from hotlap.trial.owned_folder import owned_folder\n"
        "with owned_folder('hotlap-test-') as it:\n    print(it, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        folder = Path(child.stdout.readline().decode().strip())
        assert folder.is_dir()
        child.kill()
    for _ in range(200):
        if not folder.exists():
            break
        subprocess.run(["sleep", "0.05"], check=True)
    assert not folder.exists()
