"""File operations have the same results with and without redirection, which leaves the user's tree alone."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

CHILD = Path(__file__).with_name("file_operations_child.py")

NAMES = st.sampled_from([
    "a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "n", "n/a", "link", "link/a",
    "loop", "to_a", "dangling", "../c", "empty",
])  # fmt: skip
WITH_ONE_PATH = st.sampled_from([
    "read", "describe", "remove", "rmdir", "rmtree", "mkdir", "makedirs", "readlink", "touch", "listdir", "realpath",
])  # fmt: skip
WITH_TWO_PATHS = st.sampled_from(["rename", "replace", "move", "copy", "link", "symlink"])
TEXTS = st.text("xyz", max_size=3)
MODES = st.sampled_from(["w", "a", "x", "r+", "w+", "a+"])
FLAGS = st.sampled_from(
    [
        os.O_WRONLY,
        os.O_WRONLY | os.O_CREAT,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL,
        os.O_RDWR | os.O_TRUNC,
        os.O_WRONLY | os.O_APPEND,
    ]
)


class Child:
    """A process that performs file operations in one directory of its own."""

    def __init__(self, overlay: str, work: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), overlay],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=work,
            env=environment,
        )
        self.work = work

    def ask(self, top: Path, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(top), name, arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the child died"
        return json.loads(answer)

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


def make_tree(top: Path) -> None:
    (top / "d" / "e").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "a").write_text("first")
    (top / "d" / "a").write_text("second")
    (top / "d" / "e" / "a").write_text("third")
    (top / "link").symlink_to("d")
    (top / "loop").symlink_to("loop")
    (top / "to_a").symlink_to("a")
    (top / "dangling").symlink_to("later")


def physical(top: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for folder, directories, files in os.walk(top):
        for name in [*directories, *files]:
            path = Path(folder, name)
            status = path.lstat()
            content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[str(path.relative_to(top))] = (status.st_mode, status.st_mtime_ns, status.st_ino, content)
    return found


class SameWithAndWithout(RuleBasedStateMachine):
    plain: ClassVar[Child]
    redirected: ClassVar[Child]
    numbers: ClassVar[Iterator[int]] = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        number = str(next(self.numbers))
        self.tops = [child.work / number / "work" for child in (self.plain, self.redirected)]
        for child, top in zip((self.plain, self.redirected), self.tops, strict=True):
            make_tree(top)
            child.ask(top, "begin")
        self.before = physical(self.tops[1].parent)

    def both(self, name: str, *arguments: Any) -> None:
        expected = self.plain.ask(self.tops[0], name, *arguments)
        seen = self.redirected.ask(self.tops[1], name, *arguments)
        assert seen == expected, (name, arguments)

    @rule(path=NAMES, mode=MODES, text=TEXTS)
    def write(self, path: str, mode: str, text: str) -> None:
        self.both("write", path, mode, text)

    @rule(path=NAMES, flags=FLAGS, text=TEXTS)
    def open_low(self, path: str, flags: int, text: str) -> None:
        self.both("open_low", path, flags, text)

    @rule(path=NAMES, text=TEXTS)
    def save_atomically(self, path: str, text: str) -> None:
        if path != "d" or text:
            self.both("save_atomically", path, text)

    @rule(name=WITH_ONE_PATH, path=NAMES)
    def one_path(self, name: str, path: str) -> None:
        self.both(name, path)

    @rule(name=WITH_TWO_PATHS, source=NAMES, other=NAMES)
    def two_paths(self, name: str, source: str, other: str) -> None:
        self.both(name, source, other)

    @rule(path=NAMES, length=st.integers(0, 8))
    def truncate(self, path: str, length: int) -> None:
        self.both("truncate", path, length)

    @rule(directory=st.sampled_from(["d", "d/e", "n", "link"]))
    def remove_in_open_directory(self, directory: str) -> None:
        self.both("remove_in_open_directory", directory, "a")

    @rule(directory=st.sampled_from(["d", "n", "link", "../work", "../../work"]))
    def enter(self, directory: str) -> None:
        self.both("chdir", directory)

    @invariant()
    def looks_the_same(self) -> None:
        self.both("look_around")

    def teardown(self) -> None:
        assert physical(self.tops[1].parent) == self.before


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Child, Child]]:
    plain, redirected = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("redirected")
    study = tmp_path_factory.mktemp("study")
    both = Child("-", plain), Child(str(study / "overlay"), redirected)
    yield both
    for child in both:
        child.end()


def test_any_sequence_reads_the_same_and_changes_no_original(children: tuple[Child, Child]) -> None:
    SameWithAndWithout.plain, SameWithAndWithout.redirected = children
    run_state_machine_as_test(
        SameWithAndWithout,
        settings=settings(
            max_examples=30, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
