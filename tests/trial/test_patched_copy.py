"""A copy of the source in which files are replaced: what is copied, what is linked to, and what Python then imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hotlap.errors import UsageError
from hotlap.records import Workload
from hotlap.trial.command import command_of
from hotlap.trial.patched_copy import patched_copy


def script(directory: Path, target: str = "train.py", kind: str = "script") -> Workload:
    return Workload(kind=kind, target=target, directory=str(directory), python=sys.executable)  # type: ignore[arg-type]


def printed(workload: Workload) -> str:
    done = subprocess.run(command_of(workload), cwd=workload.directory, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = (tmp_path / "project").resolve()
    (top / "package").mkdir(parents=True)
    (top / "data").mkdir()
    (top / "data" / "numbers.txt").write_text("7")
    (top / "helper.py").write_text("NAME = 'original'\n")
    (top / "package" / "__init__.py").write_text("")
    (top / "package" / "deep.py").write_text("DEEP = 'original'\n")
    (top / "train.py").write_text(
        "import helper\nfrom pathlib import Path\nfrom package.deep import DEEP\n"
        "print(helper.NAME, DEEP, Path('data/numbers.txt').read_text(), (Path(__file__).parent / 'data').is_dir())\n"
    )
    return top


def test_replaced_modules_are_imported_and_data_is_found(project: Path, tmp_path: Path) -> None:
    copy = patched_copy(script(project), {project / "package" / "deep.py": b"DEEP = 'new'\n"}, tmp_path)
    assert printed(script(project)) == "original original 7 True\n"
    assert printed(copy) == "original new 7 True\n"
    assert copy.checkout is not None and copy.checkout.original == str(project)
    copied = Path(copy.checkout.copy)
    assert (copied / "data").is_symlink() and not (copied / "helper.py").is_symlink()
    assert (project / "package" / "deep.py").read_text() == "DEEP = 'original'\n"


def test_a_module_is_run_from_the_copy(project: Path, tmp_path: Path) -> None:
    copy = patched_copy(script(project, "train", "module"), {project / "helper.py": b"NAME = 'new'\n"}, tmp_path)
    assert printed(copy) == "new original 7 True\n"


def test_a_script_below_the_working_directory(project: Path, tmp_path: Path) -> None:
    folder = project / "scripts"
    folder.mkdir()
    (folder / "run.py").write_text("from other import WORD\nprint(WORD)\n")
    (folder / "other.py").write_text("WORD = 'original'\n")
    copy = patched_copy(script(project, "scripts/run.py"), {folder / "other.py": b"WORD = 'new'\n"}, tmp_path)
    assert printed(copy) == "new\n"
    assert Path(copy.directory) == project


def test_files_without_a_common_folder_are_not_copied(project: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too much to copy"):
        patched_copy(script(project), {Path("/etc/elsewhere.py"): b""}, tmp_path)
