"""A trial refuses what ordinary users may not do to their own files, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from accounts import NOBODY, ordinary_user

CHILD = Path(__file__).with_name("redirected_child.py")
CAUGHT = """
import os, shutil
def caught(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return type(error).__name__
    return "done"
"""


@pytest.fixture
def work() -> Iterator[Path]:
    """A folder of an ordinary user's, with a file that is only read and a folder that is closed."""
    top = Path(tempfile.mkdtemp(prefix="p-"))
    work = top / "work"
    for folder in (work, work / "closed", work / "open", top / "study"):
        folder.mkdir()
    for name in ("kept", "closed/kept", "open/kept"):
        (work / name).write_text("the user's")
        (work / name).chmod(0o444)
    (work / "closed").chmod(0o555)
    if os.geteuid() == 0:
        for path in (top, *top.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    yield work
    for closed in top.rglob("closed"):  # or only root could remove what is in it
        closed.chmod(0o755)
    shutil.rmtree(top)


def run(work: Path, script: str) -> str:
    """What the script printed under redirection, run by a user who is not root."""
    path = work.parent / "script.py"
    path.write_text(CAUGHT + textwrap.dedent(script))
    words = [sys.executable, str(CHILD), str(work.parent / "study" / "overlay"), str(path)]
    nobody = ordinary_user("hotlap")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(work.parent)}
    done = subprocess.run(
        words, cwd=work, env=environment, capture_output=True, text=True, timeout=300, check=False, **nobody
    )
    assert done.returncode == 0, done.stderr
    assert {it.name: it.read_text() for it in work.rglob("kept")} == {"kept": "the user's"}
    return done.stdout.strip()


def test_a_file_that_is_only_read_is_not_written(work: Path) -> None:
    assert run(work, 'print(caught(open, "kept", "w"), caught(os.truncate, "kept", 0))') == (
        "PermissionError PermissionError"
    )


def test_an_owner_gives_a_file_another_mode_and_writes_it(work: Path) -> None:
    said = run(work, 'os.chmod("kept", 0o644)\nopen("kept", "w").write("new")\nprint(open("kept").read())')
    assert said == "new"


def test_a_file_that_is_only_read_can_be_renamed_and_deleted(work: Path) -> None:
    script = 'os.rename("kept", "moved")\nos.unlink("open/kept")\nprint(open("moved").read(), os.listdir("open"))'
    assert run(work, script) == "the user's []"


def test_nothing_is_deleted_from_a_closed_folder(work: Path) -> None:
    script = """
    print(caught(os.unlink, "closed/kept"), caught(os.rename, "closed/kept", "moved"), os.listdir("closed"))
    shutil.rmtree(".", ignore_errors=True)
    print(os.listdir("."), os.listdir("closed"))
    """
    assert run(work, script) == "PermissionError PermissionError ['kept']\n['closed'] ['kept']"


def test_a_closed_folder_can_be_opened(work: Path) -> None:
    script = """
    os.chmod("closed", 0o755)
    os.unlink("closed/kept")
    open("closed/new", "w").close()
    os.chmod("closed", 0o555)
    print(os.listdir("closed"), caught(open, "closed/more", "w"))
    """
    assert run(work, script) == "['new'] PermissionError"
