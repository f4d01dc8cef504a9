"""Tests that need a separate process: replacing it by the script, closed pipes, the cost of imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hotlap.cli.main import main
from hotlap.errors import NOT_BOOTED
from hotlap.records import Plan
from hotlap.trial.in_place import environment_with

SOURCE = Path(__file__).parents[2] / "src"
SCRIPT = """\
import os, sys
print(__name__, __file__, sys.argv[1:], os.environ.get("HOTLAP_PLAN"), os.getpid(), sep="|")
print(input(), file=sys.stderr)
sys.exit(7)
"""


def hotlap(*words: str, directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hotlap", *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCE), os.environ.get("PYTHONPATH", "")))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def planned(work: Path) -> Path:
    (work / "train.py").write_text(SCRIPT, encoding="utf-8")
    (work / "hotlap.toml").write_text("[hotlap]\nformat = 1\n", encoding="utf-8")
    return work


@pytest.mark.parametrize("words", [["train.py"], ["-m", "train"]])
def test_run_replaces_itself_with_the_script(planned: Path, words: list[str]) -> None:
    process = hotlap("run", *words, "--lr", "1", directory=planned)
    out, err = process.communicate("typed\n", timeout=300)
    name, file, arguments, plan, number = out.strip().split("|")
    assert process.returncode == 7
    assert (name, arguments, number) == ("__main__", "['--lr', '1']", str(process.pid))
    assert Path(planned, file) == planned / "train.py"
    assert plan == str(planned / "hotlap.toml")
    assert err == "hotlap: The plan hotlap.toml has no levers: the script runs unchanged.\ntyped\n"


LEVER = '[hotlap]\nformat = 1\n[levers.matmul-precision]\nprecision = "high"\n'


def run_with_a_lever(work: Path, script: str, *words: str) -> tuple[int, str, str]:
    """Run a script with a lever by ``hotlap run``; return its exit code and output."""
    (work / "hotlap.toml").write_text(LEVER, encoding="utf-8")
    (work / "train.py").write_text(textwrap.dedent(script), encoding="utf-8")
    process = hotlap("run", *(words or ("train.py",)), directory=work)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_levers_apply_after_a_library_looked_up_torch(work: Path) -> None:
    script = """
    import importlib.util
    assert importlib.util.find_spec("torch")
    import torch
    print(torch.get_float32_matmul_precision())
    """
    assert run_with_a_lever(work, script) == (0, "high\n", "")


def test_run_fails_if_torch_is_loaded_without_the_levers(work: Path) -> None:
    (work / "torch").mkdir()
    (work / "torch" / "__init__.py").write_text("", encoding="utf-8")
    script = """
    import importlib.util, sys
    from importlib.machinery import PathFinder
    spec = PathFinder.find_spec("torch")
    sys.modules["torch"] = torch = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(torch)
    print("trained")
    """
    code, out, err = run_with_a_lever(work, script)
    assert (code, out) == (NOT_BOOTED, "trained\n")
    assert err.startswith("hotlap: ") and "torch was loaded by SourceFileLoader" in err and err.count("\n") == 1


def test_run_fails_if_hotlap_cannot_start_in_the_script(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "path").mkdir()
    (work / "path" / "sitecustomize.py").write_text(
        "import os, sys\nif 'HOTLAP_PLAN' in os.environ: sys.modules['msgspec'] = None\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(work / "path"))
    code, out, err = run_with_a_lever(work, "print('trained')")
    assert (code, out) == (NOT_BOOTED, "")
    assert "the package msgspec is missing" in err


def interpreter(work: Path, line: str) -> str:
    path = work / "python3"
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_run_checks_the_users_interpreter(work: Path) -> None:
    python = interpreter(work, f'exec "{sys.executable}" -I "$@"')
    code, out, err = run_with_a_lever(work, "print('trained')", python, "train.py")
    assert (code, out) == (1, "")
    assert "hotlap was not loaded by" in err and "PYTHONPATH" in err
    assert sorted(it.name for it in work.iterdir()) == ["hotlap.toml", "python3", "train.py"]


def test_run_uses_the_users_interpreter(work: Path) -> None:
    python = interpreter(work, f'exec "{sys.executable}" "$@"')
    script = "import torch; print(torch.get_float32_matmul_precision())"
    assert run_with_a_lever(work, script, python, "train.py") == (0, "high\n", "")


def test_signals_reach_the_script(planned: Path) -> None:
    (planned / "train.py").write_text("print('up', flush=True)\nimport time\ntime.sleep(60)\n", encoding="utf-8")
    process = hotlap("run", "train.py", directory=planned)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGTERM


def test_run_warns_once_about_another_torch(planned: Path) -> None:
    (planned / "hotlap.toml").write_text('[hotlap]\nformat = 1\ntorch = "1.0"\n', encoding="utf-8")
    process = hotlap("run", "train.py", directory=planned)
    _, err = process.communicate("typed\n", timeout=300)
    assert err.count("was made with torch 1.0") == 1
    assert process.returncode == 7


def test_the_plans_environment_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"PYTHONPATH": "/theirs", "HOTLAP_ASSIGNMENT": "outer", "HOME": "/home/ada"}
    found = environment_with(Plan(), Path("hotlap.toml"), given)
    assert found["HOTLAP_PLAN"] == str(tmp_path / "hotlap.toml")
    assert "HOTLAP_ASSIGNMENT" not in found
    first, second = found["PYTHONPATH"].split(os.pathsep)[:2]
    assert (Path(first) / "sitecustomize.py").is_file()
    assert second == "/theirs"
    assert found["HOME"] == "/home/ada"


def test_a_closed_pipe_causes_no_traceback(work: Path) -> None:
    with hotlap("levers", directory=work) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=300) == 141


def test_output_that_is_not_unicode(work: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "hotlap", "tune", "naïve.py"]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, timeout=300, check=False)
    assert done.returncode == 2
    assert b"There is no script 'na?ve.py'" in done.stderr


def test_importing_hotlap_loads_nothing_else() -> None:
    code = (
        "import sys, hotlap; print(*sorted(m for m in sys.modules if m.split('.')[0] in {'hotlap', 'torch', 'rich'}))"
    )
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == ["hotlap"]


def test_commands_do_not_import_torch(work: Path) -> None:
    code = "import sys; from hotlap.cli.main import main; main(['levers']); print('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=work, env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.endswith("False\n")


def test_interrupting_a_command_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*anything: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("hotlap.cli.levers.main", interrupted)
    assert main(["levers"]) == 130
    assert capsys.readouterr().err == "hotlap: interrupted\n"
