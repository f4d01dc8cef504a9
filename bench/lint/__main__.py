"""Measure how long ``hotlap lint`` takes for a thousand files, on two cores.

Three sets: generated training scripts, files of installed packages that mention torch, spread evenly over them, and
projects whose files import each other. Every figure is of a fresh process with all rules, start-up with compiled byte
code included, and is the least of several runs: other work on the machine only ever adds. Claim: 1,000 files take less
than 10 s on two cores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from bench.lint.generate import write_files
from bench.report import command_line, table, write

FILES = 1000
CORES = 2
ALLOWED_SECONDS = 10.0
PROJECTS = Path(__file__).parents[1] / "lint_precision" / "projects"
PACKAGES = ("transformers", "torch", "accelerate", "lightning")


@dataclass(frozen=True, slots=True)
class Row:
    """One set of files on so many cores."""

    files: str
    count: int
    lines: int
    cores: int
    wall_seconds: float
    cpu_seconds: float
    findings: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.lint", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(PYTHONPYCACHEPREFIX=f"{name}/bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        write_files(folder / "generated", FILES)
        copy_real(folder / "real", FILES)
        copy_projects(folder / "projects", FILES)
        rows = [
            measured(folder / kind, cores, arguments.repeats)
            for kind in ("generated", "real", "projects")
            for cores in (1, CORES)
            if cores <= len(os.sched_getaffinity(0))
        ]
    text = "\n\n".join([introduction(), as_table(rows), verdict(rows)])
    write(
        arguments.out,
        title="Linting a thousand files",
        command=command_line("bench.lint"),
        text=text,
        data=[asdict(it) for it in rows],
    )
    print(text)
    return 0 if holds(rows) else 1


def copy_real(folder: Path, count: int) -> None:
    """This many files of installed packages that mention torch, every n-th of them, in a folder of their own."""
    found = []
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            found += sorted(Path(spec.origin).parent.rglob("*.py"))
    # A file that tests what Python must refuse is not training code.
    mentioning = [it for it in found if b"torch" in it.read_bytes() and it.name != "py312_intrinsics.py"]
    for number in range(count):
        source = mentioning[number * len(mentioning) // count]
        target = folder / f"part{number // 50}" / f"{number}_{source.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def copy_projects(folder: Path, count: int) -> None:
    """This many files of projects whose files import each other and train, in a folder each."""
    sources = sorted(PROJECTS.rglob("*.py"))
    for number in range(count):
        source = sources[number % len(sources)].relative_to(PROJECTS)
        target = folder / f"copy{number // len(sources)}" / source
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PROJECTS / source, target)


def measured(folder: Path, cores: int, repeats: int) -> Row:
    """The least of several runs, after one that warms the caches."""
    once(folder, cores)
    runs = [once(folder, cores) for _ in range(repeats)]
    files = sorted(folder.rglob("*.py"))
    return Row(
        files=folder.name,
        count=len(files),
        lines=sum(it.read_bytes().count(b"\n") for it in files),
        cores=cores,
        wall_seconds=min(it[0] for it in runs),
        cpu_seconds=min(it[1] for it in runs),
        findings=runs[0][2],
    )


def once(folder: Path, cores: int) -> tuple[float, float, int]:
    """Wall time, processor time and findings of one run on so many cores."""
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    pinned = f"import os, sys; os.sched_setaffinity(0, {allowed}); os.execv(sys.executable, sys.argv[1:])"
    # A folder outside of any project, so that no configuration is read.
    command = [sys.executable, "-m", "hotlap", "lint", "--output-format", "github", str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(it).resolve()) for it in sys.path if it)}
    begun = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", pinned, *command], stdout=subprocess.PIPE, cwd=folder.parent, env=environment
    )
    assert child.stdout is not None
    output = child.stdout.read()
    child.stdout.close()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - begun
    if child.returncode not in (0, 1):
        raise SystemExit(f"hotlap lint ended with {child.returncode}")
    return wall, used.ru_utime + used.ru_stime, output.count(b"::warning")


def holds(rows: list[Row]) -> bool:
    """Whether the claim holds."""
    on_two = [it for it in rows if it.cores == CORES]
    return bool(on_two) and all(it.wall_seconds < ALLOWED_SECONDS for it in on_two)


def introduction() -> str:
    """What was measured."""
    return (
        "Least of several fresh processes each, start-up included, pinned to so many cores. The real files are of "
        f"{', '.join(PACKAGES)}, as installed, every n-th that mentions torch. The projects are copies of those in "
        "`bench/lint_precision/projects`, whose files import each other: most of them are checked together with others."
    )


def as_table(rows: list[Row]) -> str:
    """One row per set and number of cores."""
    header = ["files", "number", "lines", "cores", "wall time", "CPU time", "per file", "findings"]
    shown = [
        [
            it.files,
            f"{it.count}",
            f"{it.lines}",
            f"{it.cores}",
            f"{it.wall_seconds:.2f} s",
            f"{it.cpu_seconds:.2f} s",
            f"{it.wall_seconds / it.count * 1000:.1f} ms",
            f"{it.findings}",
        ]
        for it in rows
    ]
    return table(header, shown)


def verdict(rows: list[Row]) -> str:
    """The claim with what was measured for it."""
    on_two = [it for it in rows if it.cores == CORES]
    if not on_two:
        return "There were no two cores to measure on."
    longest = max(it.wall_seconds for it in on_two)
    kept = "holds" if holds(rows) else "does not hold"
    return f"{FILES} files took at most {longest:.2f} s on two cores: the claim of {ALLOWED_SECONDS:.0f} s {kept}."


if __name__ == "__main__":
    sys.exit(main())
