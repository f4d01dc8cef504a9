"""Runs rows of the table, plainly or inside a trial, and report what each observed and what it changed outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from harmless.fixture import TEMPORARY, blamed, changes, make, snapshot
from harmless.inside import MARK
from harmless.operation import Group, Operation
from harmless.table import TABLE

from hotlap.errors import HotlapError
from hotlap.records import Assignment, Isolation, LaunchRequest, Workload
from hotlap.trial.isolating import Isolator
from hotlap.trial.local import LocalExecutor

Mode: TypeAlias = Literal["namespaces", "fence", "none"]
MODES: tuple[Mode, ...] = ("namespaces", "fence", "none")
_INSIDE = Path(__file__).with_name("inside.py")
_LIMIT_SECONDS = 800.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The output of a script, and how it ended if it failed."""

    output: str
    failure: str = ""


class Runner(Protocol):
    """Runs a script that takes one argument."""

    def run(self, script: Path, argument: str, *, cwd: Path, environment: Mapping[str, str]) -> Outcome: ...


class Plain:
    """Without hotlap."""

    def run(self, script: Path, argument: str, *, cwd: Path, environment: Mapping[str, str]) -> Outcome:
        done = subprocess.run(
            [sys.executable, str(script), argument],
            cwd=cwd,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
        failure = f"exit status {done.returncode}" if done.returncode else ""
        return Outcome(done.stdout.decode(errors="replace"), failure)


class Trial:
    """Inside a trial that is isolated in a mode; its runs are kept below ``directory``."""

    def __init__(self, mode: Mode, directory: Path) -> None:
        self.mode = mode
        self.directory = directory

    def run(self, script: Path, argument: str, *, cwd: Path, environment: Mapping[str, str]) -> Outcome:
        workload = Workload(
            kind="script", target=str(script), arguments=(argument,), directory=str(cwd), python=sys.executable
        )
        assignment = Assignment(workload=workload, startup_limit_seconds=_LIMIT_SECONDS)
        run = self._executor(environment).launch(LaunchRequest(assignment=assignment, steps=1))
        output = Path(run.output_path).read_text(encoding="utf-8", errors="replace")
        return Outcome(output, "" if type(run.ending).__name__ == "Completed" else str(run.ending))

    def unavailable(self) -> str:
        """Why trials cannot be isolated in this mode here; empty where they can."""
        try:
            Isolator(Isolation(mode=self.mode), self.directory, {}).protection  # noqa: B018
        except HotlapError as error:
            return str(error)
        return ""

    def _executor(self, environment: Mapping[str, str]) -> LocalExecutor:
        return LocalExecutor(self.directory, environment=environment, isolation=Isolation(mode=self.mode))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one row: the value that it returned, or the error that it raised; and what changed outside."""

    value: Any = None
    error: str = ""
    message: str = ""
    seconds: float = 0.0
    changed: tuple[str, ...] = ()

    def is_like(self, other: Result) -> bool:
        """Whether the script saw the same."""
        return (self.value, self.error) == (other.value, other.error)


Verdict: TypeAlias = Literal["same", "denied", "differs", "harms"]
_VERDICTS: Mapping[Mode, Mapping[str, frozenset[Verdict]]] = {
    "namespaces": {
        "same": frozenset({"same"}),
        "denied": frozenset({"denied"}),
        "differs": frozenset({"differs"}),
    },
    "fence": {
        "same": frozenset({"same"}),
        "denied": frozenset({"denied"}),
        "differs": frozenset({"differs"}),
        "gap": frozenset({"harms"}),
    },
    "none": {
        "same": frozenset({"same"}),
        "differs": frozenset({"differs", "denied"}),
        "harms": frozenset({"harms"}),
    },
}


def verdict(plain: Result, trial: Result) -> Verdict:
    """The verdict on a row in a trial, against its plain run."""
    if trial.changed:
        return "harms"
    if trial.is_like(plain):
        return "same"
    return "denied" if trial.error and not plain.error else "differs"


def expected(operation: Operation, mode: Mode) -> frozenset[Verdict]:
    """The verdicts allowed for a row in this mode."""
    stated = {"namespaces": operation.namespaces, "fence": operation.fence, "none": operation.none}
    return _VERDICTS[mode][stated[mode]]


@dataclass(frozen=True, slots=True)
class Launched:
    """The results by name; ``changed`` outside of all rows; ``failure`` of the launch and its ``output``."""

    results: Mapping[str, Result]
    changed: tuple[str, ...]
    failure: str
    output: str


def launch(runner: Runner, operations: Sequence[Operation], top: Path) -> Launched:
    """Run rows in one launch, in folders made below ``top``, which is created for it and removed on success."""
    rows = make(top, operations)
    script = top / "project" / "train.py"
    shutil.copy(_INSIDE, script)
    (top / "project" / "job.json").write_text(json.dumps({"top": str(top), "rows": [row.as_job() for row in rows]}))
    environment = {
        "HOME": str(top / "home"),
        "TMPDIR": str(top / TEMPORARY),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    before = snapshot(top)
    outcome = runner.run(script, "job.json", cwd=top / "project", environment=environment)
    changed = blamed(rows, changes(before, snapshot(top)))
    results = {name: _result(it, changed.get(name, ())) for name, it in _printed(outcome.output).items()}
    _remove(top)
    return Launched(results, changed.get("", ()), outcome.failure, outcome.output)


def _remove(top: Path) -> None:
    for closed in top.rglob("closed"):  # or only root could remove what is in it
        closed.chmod(0o755)
    shutil.rmtree(top)


def _printed(output: str) -> dict[str, dict[str, Any]]:
    lines = [line.removeprefix(MARK) for line in output.splitlines() if line.startswith(MARK)]
    return {it["name"]: it for it in map(json.loads, lines) if it["name"]}


def _result(printed: Mapping[str, Any], changed: tuple[str, ...]) -> Result:
    return Result(
        value=printed.get("value"),
        error=printed.get("error", ""),
        message=printed.get("message", ""),
        seconds=printed["seconds"],
        changed=changed,
    )


def launch_group(group: Group, mode: Mode | None, directory: Path) -> Launched:
    """The rows of a group in one mode, or plainly for None, below a folder that is there."""
    runner = Plain() if mode is None else Trial(mode, directory / "runs")
    return launch(runner, operations_of(TABLE, group), directory / "t")


def operations_of(table: Sequence[Operation], group: Group) -> tuple[Operation, ...]:
    """The rows of a group whose packages and programs are all installed."""
    return tuple(it for it in table if it.group == group and it.missing() is None)
