"""How the sources are built, now and at an earlier commit: files and lines by room, imports, functions, repetitions.

python -m bench.structure --before REVISION --out docs/benchmarks/structure
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.report import command_line, table, write

ROOT = Path(__file__).parents[2]
WINDOW_LINES = 6
COLLECTIONS = 2


@dataclass(frozen=True, slots=True)
class Structure:
    """``imports`` are the pairs of rooms of which one imports the other; ``repeated_lines`` stand in a run of
    six or more, without blank ones and indentation, that the sources have twice."""

    files: dict[str, int]
    lines: dict[str, int]
    imports: int
    longest_file_lines: int
    longest_function_lines: int
    longest_function: str
    repeated_lines: int
    tests: int
    collect_seconds: float


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser("python -m bench.structure")
    parser.add_argument("--before", required=True, metavar="REVISION")
    parser.add_argument("--out", type=Path, required=True)
    choices = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", choices.before], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(folder, filter="data")
        before, now = structure(Path(folder)), structure(ROOT)
    text = (
        f"Before: commit {choices.before}. Lines are those of files, comments and docstrings included; repeated ones "
        f"stand in a run of at least {WINDOW_LINES} lines that the sources have twice, lint's example sources "
        f"among them. Seconds are those of the processor, the least of {COLLECTIONS} runs of `pytest --collect-only`, "
        "of which the first compiles what has not been compiled.\n\n"
        + table(("what", "before", "now"), list(_totals(before, now)))
        + "\n\n"
        + table(("room", "files before", "files now", "lines before", "lines now"), list(_rooms(before, now)))
    )
    data = {"before": asdict(before), "now": asdict(now)}
    command = command_line("bench.structure")
    write(choices.out, title="The structure of the sources", command=command, text=text, data=data)


def structure(tree: Path) -> Structure:
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
    return Structure(dict(files), dict(lines), len(imports), longest, size, function, len(repeated), tests, seconds)


def _imported(module: ast.Module) -> Iterator[str]:
    """The rooms that a module imports."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module == "hotlap":
            yield from (it.name for it in node.names if not it.name.startswith("__"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hotlap."):
            yield str(node.module).split(".")[1]


def _windows(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Each run of lines that say something, with where it begins; imports repeat in every file and are left out."""
    kept = [it.strip() for it in text.splitlines()]
    kept = [it for it in kept if it and not it.startswith(("from ", "import "))]
    for start in range(len(kept) - WINDOW_LINES + 1):
        yield start, tuple(kept[start : start + WINDOW_LINES])


def _collected(tree: Path) -> tuple[int, float]:
    """How many tests pytest finds, and in how many seconds of the processor."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # the first run compiles for the others
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    began = _children_seconds()
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=True)
    seconds = _children_seconds() - began
    return sum("::" in line for line in done.stdout.splitlines()), seconds


def _children_seconds() -> float:
    """What the children that have ended took of the processor: less is added by a busy machine than to wall time."""
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
    yield "files", str(sum(before.files.values())), str(sum(now.files.values()))
    yield "lines", str(sum(before.lines.values())), str(sum(now.lines.values()))


def _rooms(before: Structure, now: Structure) -> Iterator[tuple[str, ...]]:
    for room in sorted({*before.files, *now.files}):
        columns = (before.files, now.files, before.lines, now.lines)
        yield f"`{room}`", *(str(it[room]) if room in it else "" for it in columns)


if __name__ == "__main__":
    main(sys.argv[1:])
