"""A denied write in a script's last output: messages as programs and libraries wrote them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hotlap.records import Assignment, Crashed, Isolation, LaunchRequest, ProtectionMode, Workload
from hotlap.sandbox import landlock
from hotlap.trial.denials import UNNAMED, denial_of, denied_path
from hotlap.trial.isolating import Isolator
from hotlap.trial.local import LocalExecutor

PYTHON = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    save(model)\n'

# Most of these were seen in trials of the mode `fence`.
IN_A_FENCE = [
    (PYTHON + "PermissionError: [Errno 13] Permission denied: 'out/p.txt'", "out/p.txt"),
    (PYTHON + "PermissionError: [Errno 13] Permission denied: \"it's.txt\"", "it's.txt"),
    (PYTHON + "PermissionError: [Errno 13] Permission denied: 'a.txt' -> 'c.txt'", "a.txt"),
    (PYTHON + "PermissionError: [Errno 13] Permission denied: b'raw.bin'", "raw.bin"),
    ("sh: 1: cannot create b.txt: Permission denied", "b.txt"),
    ("bash: line 1: b.txt: Permission denied", "b.txt"),
    ("cp: cannot create regular file 'out/b.txt': Permission denied", "out/b.txt"),
    ("mkdir: cannot create directory \u2018out/x\u2019: Permission denied", "out/x"),
    ("mv: cannot move 'a.txt' to 'out/b.txt': Permission denied", "out/b.txt"),
    ("rm: cannot remove 'a.txt': Permission denied", "a.txt"),
    ("touch: cannot touch 'new file': Permission denied", "new file"),
    ("ln: failed to create symbolic link 'l': Permission denied", "l"),
    ("gzip: a.txt.gz: Permission denied", "a.txt.gz"),
    ("tar: t.tar: Cannot open: Permission denied\ntar: Error is not recoverable: exiting now", "t.tar"),
    ("sed: couldn't open temporary file ./sediRaItB: Permission denied", "./sediRaItB"),
    ("dd: failed to open 'd.bin': Permission denied", "d.bin"),
    ("tee: t.txt: Permission denied\nx", "t.txt"),
    ("/usr/bin/ld: cannot open output file m: Permission denied\ncollect2: error: ld returned 1 exit status", "m"),
    ("zip I/O error: Permission denied\nzip error: Could not create output file (a.zip)", UNNAMED),
    (
        PYTHON + "PermissionError: [Errno 13] Failed to open local file 'out/t.parquet'. Detail: [errno 13] "
        "Permission denied",
        "out/t.parquet",
    ),
    (
        PYTHON + "PermissionError: [Errno 13] Cannot delete directory 'ckpt': Cannot delete directory entry "
        "'ckpt/best.pt'. Detail: [errno 13] Permission denied",
        "ckpt/best.pt",
    ),
    (PYTHON + "PermissionError: Permission denied (os error 13): out/t.parquet", "out/t.parquet"),
    (PYTHON + '_duckdb.IOException: IO Error: Cannot open file "out/t.csv": Permission denied', "out/t.csv"),
    (PYTHON + "lmdb.ReadonlyError: out/lm: Permission denied", "out/lm"),
    (
        PYTHON + "PermissionError: [Errno 13] Unable to synchronously create file (unable to open file: name = "
        "'out/x.h5', errno = 13, error message = 'Permission denied', flags = 13, o_flags = 242)",
        "out/x.h5",
    ),
    (
        PYTHON + 'tables.exceptions.HDF5ExtError: HDF5 error back trace\n\n  File "H5FDsec2.c", line 344, in '
        "H5FD__sec2_open\n    unable to open file: name = 'out/x.h5', errno = 13, error message = 'Permission denied', "
        "flags = 13, o_flags = 242\n\nEnd of HDF5 error back trace\n\nUnable to open/create file 'out/x.h5'",
        "out/x.h5",
    ),
    (
        PYTHON + "safetensors._safetensors_rust.SafetensorError: Error while serializing: I/O error: Permission denied "
        '(os error 13) at path "out/.tmp8ni5Kf"',
        "out/.tmp8ni5Kf",
    ),
    (
        PYTHON + "RuntimeError: unable to open file <out/x.bin> in read-write mode: Permission denied (13)",
        "out/x.bin",
    ),
    (
        PYTHON + "RuntimeError: [enforce fail at inline_container.cc:747] . open file failed with strerror: Permission "
        "denied",
        UNNAMED,
    ),
    (PYTHON + "RuntimeError: File out/model.pt cannot be opened for writing.", "out/model.pt"),
    (PYTHON + "RuntimeError: Cannot open file here.txt", "here.txt"),
    (PYTHON + "Exception: Permission denied (os error 13)", UNNAMED),
    (PYTHON + "torch.distributed.DistStoreError: Permission denied", UNNAMED),
    (PYTHON + "sqlite3.OperationalError: unable to open database file", UNNAMED),
    (PYTHON + "sqlite3.OperationalError: attempt to write a readonly database", UNNAMED),
    (
        "cp: cannot create regular file 'out/b.txt': Permission denied\n" + PYTHON + "subprocess.CalledProcessError: "
        "Command '['cp', 'a.txt', 'out/b.txt']' returned non-zero exit status 1.",
        "out/b.txt",
    ),
    (
        PYTHON + "PermissionError: [Errno 13] Permission denied: 'notes.txt'\n" + PYTHON
        + "subprocess.CalledProcessError: Command 'python -I other.py' returned non-zero exit status 1.",
        "notes.txt",
    ),
    (
        PYTHON + "PermissionError: [Errno 13] Permission denied: 'notes.txt'\n\nDuring handling of the above "
        "exception, another exception occurred:\n\n" + PYTHON + "RuntimeError: the model could not be kept",
        "notes.txt",
    ),
    ("[rank1]: " + PYTHON.replace("\n", "\n[rank1]: ") + "OSError: [Errno 13] Permission denied: 'r1.pt'", "r1.pt"),
]  # fmt: skip

# Seen in a trial of the mode `namespaces` of an ordinary user, with another user's files in the directory.
IN_NAMESPACES = [
    ("sh: 1: cannot create foreign.txt: Value too large for defined data type", "foreign.txt"),
    ("bash: line 1: foreign.txt: Value too large for defined data type", "foreign.txt"),
    (PYTHON + "OSError: [Errno 75] Value too large for defined data type: 'fd/x'", "fd/x"),
    ("sh: 1: cannot create deep/x: Read-only file system", "deep/x"),
    (PYTHON + "OSError: [Errno 30] Read-only file system: 'deep'", "deep"),
    (PYTHON + "OSError: [Errno 18] Invalid cross-device link: 'ckpt' -> 'old'", "ckpt"),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for folder in ("out", "ckpt", "deep", "fd"):
        (tmp_path / folder).mkdir()
    (tmp_path / "here.txt").write_text("here")
    return tmp_path


@pytest.mark.parametrize(("output", "path"), IN_A_FENCE)
def test_denials_under_a_fence(output: str, path: str, place: Path) -> None:
    assert denied_path(output, "fence", str(place)) == path
    assert denied_path(output, "none", str(place)) == ""
    assert denied_path(output, "namespaces", str(place)) == ""


@pytest.mark.parametrize(("output", "path"), IN_NAMESPACES)
def test_denials_under_namespaces(output: str, path: str, place: Path) -> None:
    assert denied_path(output, "namespaces", str(place)) == path
    assert denied_path(output, "fence", str(place)) == ""


@pytest.mark.parametrize(
    "output",
    [
        "",
        PYTHON + "ValueError: Permission to speak denied",
        PYTHON + "PermissionError: [Errno 13] Permission denied",  # for example of a socket: files have names
        PYTHON + "PermissionError: [Errno 13] Permission denied: '/proc/sys/vm/drop_caches'",
        PYTHON + "RuntimeError: Parent directory nowhere does not exist.",
        PYTHON + "RuntimeError: Cannot open file train.csv",  # missing file
        PYTHON + "FileNotFoundError: [Errno 2] No such file or directory: 'train.csv'",
        PYTHON + "PermissionError: [Errno 13] Permission denied: './run.sh'",  # not executable
        "tee: t.txt: Permission denied\n" + PYTHON + "ValueError: no data",  # the script continued
        "tee: t.txt: Permission denied\n" + "going on\n" * 6 + "killed",
        PYTHON + "PermissionError: [Errno 13] Permission denied: 'p.txt'\n" + PYTHON + "ValueError: another matter",
        PYTHON.replace("save(model)", "print('x: Permission denied')") + "ValueError: no",
    ],
)  # fmt: skip
def test_errors_that_are_not_denials(output: str, place: Path) -> None:
    (place / "run.sh").write_text("#!/bin/sh\n")
    assert denied_path(output, "fence", str(place)) == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_paths_the_user_cannot_write_to_anyway_are_no_denials(place: Path) -> None:
    (place / "out").chmod(0o500)
    said = PYTHON + "PermissionError: [Errno 13] Permission denied: 'out/p.txt'"
    assert denied_path(said, "fence", str(place)) == ""


def test_a_read_only_file_system_is_no_denial(place: Path) -> None:
    said = PYTHON + "OSError: [Errno 13] Permission denied: 'here.txt/below'"
    assert denied_path(said, "fence", str(place)) == ""


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (PYTHON + "FileNotFoundError: [Errno 2] Failed to open local file 'made/t.parquet'. Detail: [errno 2] No such "
         "file or directory", "made/t.parquet"),
        (PYTHON + "FileNotFoundError: No such file or directory (os error 2): made/p.parquet", "made/p.parquet"),
        (PYTHON + "RuntimeError: Parent directory made does not exist.", "made"),
        ("cat: made/new.txt: No such file or directory", "made/new.txt"),
        ("cp: cannot create regular file 'made/x': No such file or directory", "made/x"),
        (PYTHON + "Exception: No such file or directory (os error 2)", UNNAMED),
        (PYTHON + "FileNotFoundError: [Errno 2] No such file or directory: 'train.csv'", ""),
    ],
)  # fmt: skip
def test_errors_that_only_python_code_raises(
    said: str, path: str, place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    overlay = tmp_path_factory.mktemp("overlay")
    (overlay / str(place)[1:] / "made").mkdir(parents=True)
    (overlay / str(place)[1:] / "made" / "new.txt").write_text("new")
    assert denied_path(said, "fence", str(place), str(overlay)) == path
    assert denied_path(said, "fence", str(place)) == ""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a: Permission denied", "denied"),
        ("a: Permission denied\nb: Value too large for defined data type", "foreign"),
        ("[Errno 30] Read-only file system: 'x'", "read-only"),
        ("[Errno 18] Invalid cross-device link: 'x' -> 'y'", "rename"),
        ("No such file or directory (os error 2)", "unseen"),
        ("unable to open database file", "denied"),
    ],
)
def test_kinds(text: str, kind: str) -> None:
    assert denial_of(text) == kind


COMMANDS: list[tuple[ProtectionMode, list[str], str]] = [
    ("fence", ["sh", "-c", "echo x > b.txt"], "b.txt"),
    ("fence", ["cp", "here.txt", "out/b.txt"], "out/b.txt"),
    ("fence", ["env", "LC_ALL=C.UTF-8", "mkdir", "out/x"], "out/x"),
    ("fence", [sys.executable, "-c", "open('out/p.txt', 'w')"], "out/p.txt"),
    ("fence", [sys.executable, "-c", "import subprocess; subprocess.run(['rm', 'here.txt'], check=True)"], "here.txt"),
    ("fence", [sys.executable, "-c", "import sqlite3; sqlite3.connect('d').execute('create table a(b)')"], UNNAMED),
]


@pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")
@pytest.mark.parametrize(("mode", "command", "path"), COMMANDS)
def test_denials_by_this_kernel_are_recognised(
    mode: ProtectionMode, command: list[str], path: str, place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    isolator = Isolator(Isolation(mode=mode), tmp_path_factory.mktemp("runs"), {})
    shared = tmp_path_factory.mktemp("shared")
    status, said = isolator.run_briefly(command, str(place), os.environ, shared)
    assert status not in (0, None)
    assert denied_path(said, mode, str(place)) == path


@pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")
@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("import subprocess; subprocess.run(['cp', 'here.txt', 'copy.txt'], check=True)", "copy.txt"),
        ("import os, subprocess; os.mkdir('made'); subprocess.run(['cp', 'here.txt', 'made/x'], check=True)", "made/x"),
        ("raise ValueError('no data')", ""),
    ],
)
def test_a_failed_run_names_the_denied_path(
    source: str, path: str, place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (place / "train.py").write_text(source)
    executor = LocalExecutor(tmp_path_factory.mktemp("runs"), isolation=Isolation(mode="fence"))
    workload = Workload(kind="script", target="train.py", directory=str(place), python=sys.executable)
    run = executor.launch(LaunchRequest(assignment=Assignment(workload=workload), steps=1))
    assert isinstance(run.ending, Crashed)
    assert run.ending.denied_path == path
