"""Programs that a trial's script starts with an environment of its own have hotlap's folder on their path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotlap.runtime.child_paths import with_hotlap

SITE = os.fsencode(Path(__file__).parents[2] / "src" / "hotlap" / "runtime" / "site")
TRIAL = b"HOTLAP_ASSIGNMENT=/somewhere/assignment.json"
SHOWS = "import os; print(os.environ.get('PYTHONPATH', 'none'))"
STARTS = """
import os, sys
from hotlap.runtime import child_paths
{before}
child_paths.install()
import subprocess
environment = {{name: it for name, it in os.environ.items() if name != "PYTHONPATH"}}
if {trial}:
    environment["HOTLAP_ASSIGNMENT"] = "/nowhere"
done = subprocess.run([sys.executable, "-S", "-c", {shows!r}], env=environment, close_fds={close}, text=True,
                      stdout=subprocess.PIPE, check=True)
assert "PYTHONPATH" not in environment
print(done.stdout)
"""


def entries(environment: list[bytes]) -> list[bytes]:
    """The folders of its only PYTHONPATH."""
    (path,) = (it.removeprefix(b"PYTHONPATH=") for it in environment if it.startswith(b"PYTHONPATH="))
    return path.split(os.fsencode(os.pathsep))


def test_the_folder_comes_first_and_the_rest_stays() -> None:
    found = with_hotlap([b"A=1", b"PYTHONPATH=/one:/two", TRIAL])
    assert entries(found) == [SITE, b"/one", b"/two"]
    assert found[:2] == [b"A=1", TRIAL]
    assert entries(with_hotlap([TRIAL])) == [SITE]
    assert entries(with_hotlap([TRIAL, b"PYTHONPATH="])) == [SITE]


@pytest.mark.parametrize(
    "environment",
    [[], [b"A=1", b"PYTHONPATH=/one"], [TRIAL, b"PYTHONPATH=/one:" + SITE], [b"PYTHONPATH=" + SITE, TRIAL]],
)
def test_nothing_changes_outside_of_a_trial_or_where_it_is(environment: list[bytes]) -> None:
    assert with_hotlap(environment) is environment


@pytest.mark.parametrize("before", ["", "import subprocess"])
@pytest.mark.parametrize("close", [True, False], ids=["fork-exec", "posix-spawn"])
@pytest.mark.parametrize("trial", [True, False])
def test_a_real_child(before: str, close: bool, trial: bool) -> None:
    code = STARTS.format(before=before, trial=trial, shows=SHOWS, close=close)
    path = os.pathsep.join(it for it in sys.path if it)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (os.fsdecode(SITE) if trial else "none")


def test_the_environment_of_the_parent_is_left_alone() -> None:
    """Python 3.13 passes None on where a program gets the environment of its parent."""
    code = "import os, subprocess, sys\nfrom hotlap.runtime import child_paths\nchild_paths.install()\n"
    code += "child = [sys.executable, '-c', 'print(7)']\n"
    code += "print(subprocess.run(child, close_fds=False, text=True, capture_output=True).stdout)"
    path = os.pathsep.join(it for it in sys.path if it)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["7"], done.stderr
