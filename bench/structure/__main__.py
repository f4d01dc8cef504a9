"""How the sources are built, now and at an earlier commit: files and lines by room, imports, functions, repetitions.

python -m bench.structure --before REVISION --out docs/benchmarks/structure

With ``--run-tests`` each tree's ordinary tests are also run once, in one process.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import re
import resource
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeGuard

from bench.report import command_line, table, write

ROOT = Path(__file__).parents[2]
WINDOW_LINES = 6
COLLECTIONS = 2
_SOME_TESTS_FAILED = 1


@dataclass(frozen=True, slots=True)
class Structure:
    """``imports`` are the pairs of rooms of which one imports the other; ``repeated_lines`` are lines of code in a run
    of six or more, without blank ones and indentation, that the sources have twice. ``run`` is the run of the tests,
    None where they were not run."""

    files: dict[str, int]
    lines: dict[str, int]
    imports: int
    longest_file_lines: int
    longest_function_lines: int
    longest_function: str
    repeated_lines: int
    tests: int
    collect_seconds: float
    run: TestRun | None


@dataclass(frozen=True, slots=True)
class TestRun:
    """``seconds`` are those of the processor, of pytest and all processes that it started."""

    passed: int
    failed: int
    seconds: float


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser("python -m bench.structure")
    parser.add_argument("--before", required=True, metavar="REVISION")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--run-tests", action="store_true", help="also run the tests of both; takes most of an hour")
    choices = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", choices.before], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(folder, filter="data")
        before, now = (structure(it, runs_tests=choices.run_tests) for it in (Path(folder), ROOT))
    text = (
        f"Before: commit {choices.before}. Lines are those of files, comments and docstrings included; repeated ones "
        f"are lines of code in a run of at least {WINDOW_LINES} that the sources have twice, without imports and text. "
        "Seconds are those of the processor, of all processes. Those to collect the tests are the least of "
        f"{COLLECTIONS} runs of `pytest --collect-only`, of which the first compiles what has not been compiled; those "
        "to run them are of one run of the ordinary tests in one process.\n\n"
        + table(("what", "before", "now"), list(_totals(before, now)))
        + "\n\n"
        + table(("room", "files before", "files now", "lines before", "lines now"), list(_rooms(before, now)))
    )
    data = {"before": asdict(before), "now": asdict(now)}
    command = command_line("bench.structure")
    write(choices.out, title="The structure of the sources", command=command, text=text, data=data)


def structure(tree: Path, *, runs_tests: bool = False) -> Structure:
    """Of the sources and tests below that folder."""
    sources = tree / "src" / "hotlap"
    files, lines = Counter[str](), Counter[str]()
    imports: set[tuple[str, str]] = set()
    functions: list[tuple[int, str]] = []
    longest = 0
    runs: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for path in sorted(sources.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = str(path.relative_to(sources))
        room = path.relative_to(sources).parts[0].removesuffix(".py")
        count = len(text.splitlines())
        files[room], lines[room], longest = files[room] + 1, lines[room] + count, max(longest, count)
        module = ast.parse(text)
        imports |= {(room, other) for other in _imported(module) if other != room}
        functions += [
            ((it.end_lineno or it.lineno) - it.lineno + 1, f"{name}: {it.name}")
            for it in ast.walk(module)
            if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        for start, run in _windows(text):
            runs.setdefault(run, []).append((name, start))
    twice = [place for places in runs.values() if len(places) > 1 for place in places]
    repeated = {(name, start + it) for name, start in twice for it in range(WINDOW_LINES)}
    tests, seconds = min((_collected(tree) for _ in range(COLLECTIONS)), key=lambda it: it[1])
    size, function = max(functions)
    run = _run(tree) if runs_tests else None
    return Structure(
        dict(files), dict(lines), len(imports), longest, size, function, len(repeated), tests, seconds, run
    )


def _imported(module: ast.Module) -> Iterator[str]:
    """The rooms that a module imports."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module == "hotlap":
            yield from (it.name for it in node.names if not it.name.startswith("__"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hotlap."):
            yield str(node.module).split(".")[1]


def _windows(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Each run of lines of code, with its index; imports, which repeat in every file, and text are left out."""
    left_out = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Import, ast.ImportFrom)) or _is_text(node)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    kept = [it.strip() for number, it in enumerate(text.splitlines(), start=1) if number not in left_out]
    kept = [it for it in kept if it]
    for start in range(len(kept) - WINDOW_LINES + 1):
        yield start, tuple(kept[start : start + WINDOW_LINES])


def _is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    """Whether it is text of several lines: a docstring, or an example source."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.end_lineno != node.lineno


def _collected(tree: Path) -> tuple[int, float]:
    """How many tests pytest finds, and in how many seconds of the processor."""
    printed, seconds = _pytest(tree, "--collect-only")
    return sum("::" in line for line in printed.splitlines()), seconds


def _run(tree: Path) -> TestRun:
    """Run the ordinary tests, one after another."""
    printed, seconds = _pytest(tree, "-p", "no:xdist")
    last = printed.splitlines()[-1]
    passed, failed = (re.search(rf"(\d+) {it}", last) for it in ("passed", "failed"))
    return TestRun(int(passed[1]) if passed else 0, int(failed[1]) if failed else 0, seconds)


def _pytest(tree: Path, *options: str) -> tuple[str, float]:
    """What pytest prints, and how many seconds of the processor it takes."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # the first run compiles for the others
    command = [sys.executable, "-m", "pytest", *options, "-q", "-p", "no:cacheprovider", "tests"]
    began = _children_seconds()
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, _SOME_TESTS_FAILED):
        raise SystemExit(
            f"pytest in {tree.name} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout, _children_seconds() - began


def _children_seconds() -> float:
    """The processor time of all children that have ended. A busy machine changes it less than wall time."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _totals(before: Structure, now: Structure) -> Iterator[tuple[str, ...]]:
    for what, name in (
        ("rooms that import another, pairs", "imports"),
        ("lines of the longest file", "longest_file_lines"),
        ("lines of the longest function", "longest_function_lines"),
        ("which is", "longest_function"),
        ("repeated lines", "repeated_lines"),
        ("tests that pytest collects", "tests"),
    ):
        yield what, str(getattr(before, name)), str(getattr(now, name))
    yield "processor seconds to collect them", f"{before.collect_seconds:.1f}", f"{now.collect_seconds:.1f}"
    if before.run is not None and now.run is not None:
        yield "tests that pass", str(before.run.passed), str(now.run.passed)
        yield "processor seconds to run them", f"{before.run.seconds:.0f}", f"{now.run.seconds:.0f}"
    yield "files", str(sum(before.files.values())), str(sum(now.files.values()))
    yield "lines", str(sum(before.lines.values())), str(sum(now.lines.values()))


def _rooms(before: Structure, now: Structure) -> Iterator[tuple[str, ...]]:
    for room in sorted({*before.files, *now.files}):
        columns = (before.files, now.files, before.lines, now.lines)
        yield f"`{room}`", *(str(it[room]) if room in it else "" for it in columns)


if __name__ == "__main__":
    main(sys.argv[1:])
