"""hotlap's start in a process: it starts, or the process ends with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from hotlap.errors import NOT_BOOTED
from hotlap.records import Assignment, Setting, Workload
from hotlap.records import Plan as PlanRecord
from hotlap.sandbox.boundary import Boundary
from hotlap.trial.command import HOOKS_DIRECTORY

PLAN = '[hotlap]\nformat = 1\n[levers.matmul-precision]\nprecision = "high"\n'
# A torch without the functions that hotlap hooks, quick to import.
FAKE_TORCH = {"torch/__init__.py": "import torch.nn\n", "torch/nn.py": ""}


class Process:
    """A folder with what a process of the user's is made of, and a way to run it as a trial or with a plan."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "path"
        self.run_directory = folder / "run"
        for it in (self.path, self.run_directory, folder / "work"):
            it.mkdir()

    def give(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), encoding="utf-8")

    def with_plan(self, script: str, **more: str) -> subprocess.CompletedProcess[str]:
        plan = self.folder / "hotlap.toml"
        if not plan.exists():
            plan.write_text(PLAN, encoding="utf-8")
        return self.run(script, HOTLAP_PLAN=str(plan), **more)

    def in_trial(self, script: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run(script, **{**self.trial(), **more})

    def trial(self, *settings: Setting) -> dict[str, str]:
        workload = Workload(kind="script", target="s.py", directory=str(self.folder / "work"), python=sys.executable)
        assignment = Assignment(workload=workload, plan=PlanRecord(settings=settings))
        path = self.run_directory / "assignment.json"
        path.write_bytes(msgspec.json.encode(assignment))
        return {
            "HOTLAP_ASSIGNMENT": str(path),
            "HOTLAP_RUN_DIRECTORY": str(self.run_directory),
            "HOTLAP_SOCKET": str(self.folder / "socket"),
        }

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            cwd=self.folder / "work",
            env={**self.environment(), **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HOTLAP_")}
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join((str(HOOKS_DIRECTORY), str(self.path))),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def marks(self) -> dict[int, str]:
        folder = self.run_directory / "processes"
        return {int(it.name): it.read_text().rstrip() for it in folder.iterdir()} if folder.exists() else {}


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


def ended(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """The process ended with one sentence that holds these words, and the script did not run."""
    assert done.returncode == NOT_BOOTED, done.stderr
    line, rest = done.stderr.split("\n", 1)
    assert line.startswith("hotlap: The process was ended because hotlap") and not rest
    for word in words:
        assert word in line
    assert done.stdout == ""


# -- failures of ours end the process -------------------------------------------------------------


@pytest.mark.parametrize("way", ["with_plan", "in_trial"])
def test_a_missing_package_ends_the_process(process: Process, way: str) -> None:
    process.give({"sitecustomize.py": "import sys; sys.modules['msgspec'] = None\n"})
    done = getattr(process, way)("print('ran')")
    ended(done, "msgspec", sys.executable)


def test_a_hotlap_that_cannot_be_imported_ends_the_process(process: Process) -> None:
    process.give({"sitecustomize.py": "import sys; sys.modules['hotlap.runtime.entrance'] = None\n"})
    ended(process.with_plan("print('ran')"), "cannot be imported", sys.executable)


def test_hotlap_is_the_one_that_the_hooks_belong_to(process: Process) -> None:
    """Another interpreter may have another hotlap, or the user a module of that name."""
    process.give({"hotlap.py": "raise RuntimeError('not this one')\n", **FAKE_TORCH})
    done = process.with_plan("import hotlap.errors; print(hotlap.__file__)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(HOOKS_DIRECTORY.parents[1] / "__init__.py")


def test_an_unreadable_plan_ends_the_process(process: Process) -> None:
    (process.folder / "hotlap.toml").write_text("[levers.nonsense]\n", encoding="utf-8")
    ended(process.with_plan("print('ran')"), "nonsense")
    (process.folder / "hotlap.toml").unlink()
    missing = process.run("print('ran')", HOTLAP_PLAN=str(process.folder / "hotlap.toml"))
    ended(missing, "hotlap.toml cannot be read")


@pytest.mark.parametrize("content", [None, b"", b'{"workload": 3}', b"\xff"])
def test_an_unreadable_assignment_ends_the_process(process: Process, content: bytes | None) -> None:
    variables = process.trial()
    path = Path(variables["HOTLAP_ASSIGNMENT"])
    path.unlink() if content is None else path.write_bytes(content)
    ended(process.run("print('ran')", **variables), "assignment.json")


@pytest.mark.parametrize("name", ["HOTLAP_RUN_DIRECTORY", "HOTLAP_SOCKET"])
def test_a_variable_that_was_lost_ends_the_process(process: Process, name: str) -> None:
    variables = process.trial()
    del variables[name]
    ended(process.run("print('ran')", **variables), name)


def test_an_overlay_that_cannot_be_made_ends_the_process(process: Process) -> None:
    (process.run_directory / "files").write_text("in the way", encoding="utf-8")
    ended(process.in_trial("print('ran')"), str(process.run_directory / "files"), "Free some space")


def test_a_disk_that_is_full_ends_the_process(process: Process) -> None:
    process.give(
        {
            "sitecustomize.py": """
        import errno, pathlib
        def mkdir(self, *arguments, **keywords):
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        pathlib.Path.mkdir = mkdir
        """
        }
    )
    ended(process.in_trial("print('ran')"), "No space left on device", "Free some space")


def test_a_protection_that_does_not_exist_ends_the_process(process: Process) -> None:
    ended(process.in_trial("print('ran')", HOTLAP_PROTECTION="walls"), "'walls'", "namespaces")


@pytest.mark.parametrize("way", ["with_plan", "in_trial"])
def test_a_failure_after_torchs_import_ends_the_process(process: Process, way: str) -> None:
    """What is printed before is not lost, and no script can catch it."""
    process.give(FAKE_TORCH)
    done = getattr(process, way)(
        """
        print("before")
        try:
            import torch
        except BaseException:
            print("caught")
        print("went on")
        """
    )
    assert done.returncode == NOT_BOOTED
    assert done.stdout == "before\n"
    assert done.stderr.startswith("hotlap: ") and done.stderr.count("\n") == 1 and "AttributeError" in done.stderr
    if way == "in_trial":
        (mark,) = process.marks().values()
        assert mark.startswith("failed The process was ended")


# -- torch that is loaded around hotlap -----------------------------------------------------------

AROUND = """
import importlib.util, sys
from importlib.machinery import PathFinder
spec = PathFinder.find_spec("torch")
sys.modules["torch"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""


@pytest.mark.parametrize("way", ["with_plan", "in_trial"])
def test_torch_that_was_loaded_around_hotlap_is_noticed_at_once(process: Process, way: str) -> None:
    process.give(FAKE_TORCH)
    done = getattr(process, way)(AROUND + "print('trained')")
    ended(done, "torch was loaded by SourceFileLoader")


@pytest.mark.parametrize("way", ["with_plan", "in_trial"])
def test_torch_that_was_loaded_around_hotlap_is_noticed_at_exit(process: Process, way: str) -> None:
    process.give({"torch/__init__.py": ""})
    done = getattr(process, way)(AROUND + "print('trained')")
    assert (done.returncode, done.stdout) == (NOT_BOOTED, "trained\n")
    assert "torch was loaded by SourceFileLoader" in done.stderr


def test_a_script_without_torch_is_left_alone(process: Process) -> None:
    done = process.with_plan("import sys; print('ran'); sys.exit(5)")
    assert (done.returncode, done.stdout, done.stderr) == (5, "ran\n", "")


# -- the user's own customizations ----------------------------------------------------------------

CUSTOMIZATIONS = {
    "absent": None,
    "works": "print('customized')",
    "raises": "raise ValueError('of the user')",
    "lacks a module": "import nonexistent_module",
    "import error of its own name": "raise ImportError('odd', name='sitecustomize')",
    "exits": "raise SystemExit(3)",
    "exits with nothing": "raise SystemExit",
    "interrupted": "raise KeyboardInterrupt",
    "leaves": "import os; os._exit(4)",
}
SHOWS = "import sys; print('ran', 'sitecustomize' in sys.modules)"


@pytest.mark.parametrize("customization", CUSTOMIZATIONS)
def test_the_users_sitecustomize_behaves_as_without_hotlap(process: Process, customization: str) -> None:
    text = CUSTOMIZATIONS[customization]
    if text is not None:
        process.give({"sitecustomize.py": text + "\n"})
    plainly = process.run(SHOWS, PYTHONPATH=str(process.path))
    done = process.with_plan(SHOWS)
    assert (done.returncode, done.stdout) == (plainly.returncode, plainly.stdout)
    if customization in ("exits", "exits with nothing", "interrupted"):  # Python adds a traceback, with our frames
        assert done.stderr.splitlines()[0] == plainly.stderr.splitlines()[0]
        assert done.stderr.splitlines()[-1] == plainly.stderr.splitlines()[-1]
    else:
        assert done.stderr == plainly.stderr


def test_hotlap_boots_after_a_sitecustomize_that_raises(process: Process) -> None:
    process.give({"sitecustomize.py": "raise ValueError('of the user')\n"})
    assert "Error in sitecustomize; set PYTHONVERBOSE for traceback:\nValueError: of the user" in (
        process.in_trial("open('kept.txt', 'w').write('in the run')").stderr
    )
    assert not (process.folder / "work" / "kept.txt").exists()
    assert list(process.marks().values()) == ["booted"]


def test_usercustomize_goes_on_working(process: Process) -> None:
    process.give({"usercustomize.py": "print('usercustomize')\n"})
    plainly = process.run("print('ran')", PYTHONPATH=str(process.path), PYTHONUSERBASE=str(process.folder))
    done = process.with_plan("print('ran')", PYTHONUSERBASE=str(process.folder))
    assert done.stdout == plainly.stdout
    assert (done.returncode, done.stderr) == (0, "")


# -- protection -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [None, "fence", "none"])
def test_writes_are_redirected_in_python(process: Process, mode: str | None) -> None:
    more = {"HOTLAP_PROTECTION": mode} if mode else {}
    Boundary(protected=[], caches=[], run=[str(process.run_directory)]).write(process.folder)
    done = process.in_trial("open('made.txt', 'w').write('x'); print(open('made.txt').read())", **more)
    assert (done.returncode, done.stdout) == (0, "x\n"), done.stderr
    assert not (process.folder / "work" / "made.txt").exists()


@pytest.mark.parametrize("variable", ["TMPDIR", "HF_HOME", "XDG_CACHE_HOME"])
def test_what_the_script_sets_does_not_move_the_boundary(process: Process, variable: str) -> None:
    """The kernel would deny what the layer does not redirect."""
    Boundary(protected=[], caches=[], run=[str(process.run_directory)]).write(process.folder)
    folder = process.folder / "mine"
    made = folder / "hub" / "made.txt"
    made.parent.mkdir(parents=True)
    script = f"open({str(made)!r}, 'w').write('x'); print(open({str(made)!r}).read())"
    done = process.in_trial(script, HOTLAP_PROTECTION="fence", **{variable: str(folder)})
    assert (done.returncode, done.stdout) == (0, "x\n"), done.stderr
    assert not made.exists()


def test_a_run_without_its_boundary_does_not_begin(process: Process) -> None:
    done = process.in_trial("print('ran')", HOTLAP_PROTECTION="fence")
    assert (done.returncode, done.stdout) == (NOT_BOOTED, "")
    assert "boundary.json" in done.stderr


def test_nothing_is_redirected_in_namespaces(process: Process) -> None:
    script = """
    import builtins, _io, os, posix, sqlite3, sys
    assert builtins.open is _io.open and os.remove is posix.remove and type(sqlite3.connect) is type(len)
    print(*(it for it in sys.modules if it in ("hotlap.runtime.files", "hotlap.runtime.overlay")))
    """
    done = process.in_trial(script, HOTLAP_PROTECTION="namespaces")
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
    assert not (process.run_directory / "files").exists()


# -- marks ----------------------------------------------------------------------------------------


def test_each_process_leaves_a_mark(process: Process) -> None:
    script = """
    import os, subprocess, sys
    forked = os.fork()
    if forked == 0:
        os._exit(0)
    os.waitpid(forked, 0)
    print(os.getpid(), forked, subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True, text=True).stdout)
    """
    done = process.in_trial(script)
    assert done.returncode == 0, done.stderr
    assert process.marks() == {int(number): "booted" for number in done.stdout.split()}
    assert len(process.marks()) == 3


def test_the_mark_says_that_torch_was_announced(process: Process) -> None:
    done = process.in_trial(
        """
        import importlib.util, os
        assert importlib.util.find_spec("torch")
        import torch
        forked = os.fork()
        if forked == 0:
            os._exit(0)
        os.waitpid(forked, 0)
        """
    )
    assert done.returncode == 0, done.stderr
    assert list(process.marks().values()) == ["torch", "torch"]


def test_a_torch_that_fails_is_marked_as_begun(process: Process) -> None:
    process.give({"torch/__init__.py": "raise ImportError('no such library')\n"})
    done = process.in_trial("try:\n    import torch\nexcept ImportError:\n    print('went on')\n")
    assert done.stdout == "went on\n"
    assert list(process.marks().values()) == ["importing"]


def test_a_mark_that_cannot_be_left_by_a_forked_process_is_no_failure(process: Process) -> None:
    done = process.in_trial(
        """
        import os, shutil
        shutil.rmtree(os.path.join(os.environ["HOTLAP_RUN_DIRECTORY"], "processes"))
        forked = os.fork()
        if forked == 0:
            os._exit(0)
        print(os.waitpid(forked, 0)[1])
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


# -- what the entrance costs ----------------------------------------------------------------------


def test_the_entrance_imports_little(process: Process) -> None:
    done = process.in_trial("import sys; print(*sys.modules)", HOTLAP_PROTECTION="namespaces")
    loaded = set(done.stdout.split())
    assert "hotlap.runtime.boot" in loaded
    assert not loaded & {"asyncio", "importlib.metadata", "socket", "numpy", "psutil", "json", "hotlap.runtime.session"}
