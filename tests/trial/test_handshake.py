"""The handshake with the script's interpreter, with real interpreters."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hotlap.errors import ScriptError
from hotlap.records import Assignment, Workload
from hotlap.runtime import entrance, greeting
from hotlap.trial import handshake
from hotlap.trial.command import HOOKS_DIRECTORY, environment_of
from hotlap.trial.handshake import NEEDED_BY_PLANS, handshake_environment, read_handshake, shake_hands


def starter(**more: str) -> handshake.Start:
    """Start a command as in a trial."""

    def start(command: Sequence[str], variables: Mapping[str, str]) -> tuple[int | None, str]:
        workload = Workload(kind="script", target="t.py", directory=str(Path.cwd()), python=command[0])
        environment = environment_of(Assignment(workload=workload), variables) | dict(variables) | more
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return done.returncode, done.stdout

    return start


def answer(**more: Any) -> dict[str, Any]:
    fine = {"found": True, "version": "99.0", "problem": ""}
    packages = dict.fromkeys(("msgspec", "numpy", "psutil", "torch"), fine) | more.pop("packages", {})
    return {"protocol": 1, "python": "3.12.1", "executable": "/envs/a/bin/python", "packages": packages, **more}


def read(tmp_path: Path, document: object, **options: Any) -> handshake.Handshake:
    (tmp_path / "answer").write_text(json.dumps(document), encoding="utf-8")
    return read_handshake(tmp_path / "answer", "", 0, **options)


def test_runtime_and_trial_need_the_same_packages() -> None:
    assert greeting.PROTOCOL == handshake.PROTOCOL
    assert entrance.HANDSHAKE_VARIABLE == handshake.HANDSHAKE_VARIABLE
    assert handshake_environment(Path("/a/b")) == {entrance.HANDSHAKE_VARIABLE: "/a/b"}


def test_an_interpreter_with_all_packages(tmp_path: Path) -> None:
    found = shake_hands(starter(), sys.executable, tmp_path)
    assert found.executable == sys.executable
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.packages["torch"].version and found.packages["msgspec"].version


def test_only_the_answer_is_written_and_torch_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    found = shake_hands(starter(PYTHONPATH=f"{HOOKS_DIRECTORY}:{tmp_path}"), sys.executable, tmp_path)
    assert found.packages["torch"].found
    assert sorted(it.name for it in tmp_path.iterdir()) == ["handshake.json", "torch"]


def wrapper(folder: Path, text: str) -> str:
    path = folder / "python-wrapper"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("option", ["-I", "-S", "-E"])
def test_an_interpreter_that_does_not_load_hotlap(tmp_path: Path, option: str) -> None:
    python = wrapper(tmp_path, f'exec "{sys.executable}" {option} "$@"')
    with pytest.raises(ScriptError, match=r"hotlap was not loaded by .*python-wrapper") as caught:
        shake_hands(starter(), python, tmp_path)
    assert "PYTHONPATH" in caught.value.remedy


def test_an_interpreter_that_replaces_the_path(tmp_path: Path) -> None:
    python = wrapper(tmp_path, f'PYTHONPATH=src exec "{sys.executable}" "$@"')
    with pytest.raises(ScriptError, match="hotlap was not loaded"):
        shake_hands(starter(), python, tmp_path)


def test_an_old_answer_is_not_used_again(tmp_path: Path) -> None:
    shake_hands(starter(), sys.executable, tmp_path)
    with pytest.raises(ScriptError, match="hotlap was not loaded"):
        shake_hands(lambda command, variables: (0, ""), sys.executable, tmp_path)


def test_an_interpreter_that_fails(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"fails when it is started .*\(exit status 1\)"):
        shake_hands(starter(PYTHONHOME=str(tmp_path)), sys.executable, tmp_path)


def test_an_interpreter_that_hangs(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="did not end in time"):
        shake_hands(lambda command, variables: (None, "waiting"), sys.executable, tmp_path)


def test_an_answer_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="No such file or directory") as caught:
        shake_hands(
            lambda command, variables: starter()(command, handshake_environment(tmp_path / "none" / "it")),
            sys.executable,
            tmp_path,
        )
    assert not caught.value.what.startswith("hotlap:")


def test_missing_packages_are_named_with_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['msgspec'] = sys.modules['psutil'] = None\n", encoding="utf-8"
    )
    start = starter(PYTHONPATH=f"{HOOKS_DIRECTORY}:{tmp_path}")
    with pytest.raises(ScriptError, match=r"msgspec \(not installed\), psutil \(not installed\)") as caught:
        shake_hands(start, sys.executable, tmp_path)
    python = shlex.quote(sys.executable)
    assert caught.value.remedy == f"Install it: {python} -m pip install --upgrade 'msgspec>=0.18' 'psutil>=5.9'"
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['psutil'] = None\n", encoding="utf-8")
    shake_hands(start, sys.executable, tmp_path, needed=NEEDED_BY_PLANS)


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ({"found": True, "version": "0.17.9", "problem": ""}, r"msgspec \(0\.17\.9 is too old\)"),
        ({"found": False, "version": "", "problem": "ImportError: libc.so"}, r"cannot be imported: ImportError: libc"),
    ],
)
def test_incompatible_package_versions(tmp_path: Path, package: dict[str, Any], words: str) -> None:
    with pytest.raises(ScriptError, match=words):
        read(tmp_path, answer(packages={"msgspec": package}))


@pytest.mark.parametrize("version", ["0.18", "0.18.6", "0.100", "1.0rc1", ""])
def test_compatible_package_versions(tmp_path: Path, version: str) -> None:
    package = {"found": True, "version": version, "problem": ""}
    assert read(tmp_path, answer(packages={"msgspec": package})).packages["msgspec"].version == version


@pytest.mark.parametrize(("version", "fits"), [("2.5.1", False), ("2.6.0+cu124", True), ("2.13.0", True), ("", True)])
def test_torch_is_too_old(tmp_path: Path, version: str, fits: bool) -> None:
    given = answer(packages={"torch": {"found": True, "version": version, "problem": ""}})
    if fits:
        assert read(tmp_path, given).packages["torch"].version == version
        return
    with pytest.raises(ScriptError, match=r"has torch 2\.5\.1; hotlap needs 2\.6 or newer"):
        read(tmp_path, given)


def test_torch_is_not_installed(tmp_path: Path) -> None:
    missing = {"found": False, "version": "", "problem": ""}
    with pytest.raises(ScriptError, match="torch is not installed for /envs/a/bin/python"):
        read(tmp_path, answer(packages={"torch": missing}))


def test_an_old_python(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"is Python 3\.9\.2; hotlap needs 3\.11"):
        read(tmp_path, answer(python="3.9.2"))


def test_another_version_of_hotlap_answers(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="Another version of hotlap answered"):
        read(tmp_path, {"protocol": 2, "something": "else"})


@pytest.mark.parametrize("content", ["", "[]", "{", '{"protocol": "one"}', '{"protocol": 1}'])
def test_an_invalid_answer_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "answer").write_text(content, encoding="utf-8")
    with pytest.raises(ScriptError, match="cannot be read"):
        read_handshake(tmp_path / "answer", "", 0)


def test_a_pipe_in_place_of_the_answer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "answer")
    with pytest.raises(ScriptError, match="hotlap was not loaded"):
        read_handshake(tmp_path / "answer", "", 0)
