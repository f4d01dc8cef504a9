"""The house's walls, as docs/architecture.md draws them: who may import whom, and where what may happen."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from hotlap import records

SOURCE = Path(__file__).parents[1] / "src" / "hotlap"
LONGEST_FILE_LINES = 500

# What each room may import of ours. A room is a folder, or a file directly below src/hotlap.
GROUND = {"records", "errors", "evidence", "files", "redact", "wording"}
SEARCH = GROUND | {"plan", "study", "machine", "trial", "measure", "levers"}
MAY_IMPORT: dict[str, set[str]] = {
    "records": set(),
    "errors": set(),
    "evidence": {"records"},
    # How the kernel isolates a trial: also what starts before each launch, so the standard library alone.
    "sandbox": set(),
    # Opening and replacing files, and hiding secrets: every room needs both.
    "files": set(),
    "redact": {"records"},
    # Words for both measuring and reporting.
    "wording": {"records"},
    # Where allocators are installed: a fact of the machine, and what a lever preloads.
    "allocators": set(),
    "levers": GROUND | {"allocators"},
    "plan": GROUND | {"levers"},
    "machine": GROUND | {"allocators"},
    # The verdict of a comparison on an objective.
    "objective": {"records"},
    # The gain of a study's plan, for its cost.
    "measure": GROUND | {"gain"},
    # The plan, which it reads only where a script applies one to itself.
    "runtime": GROUND | {"levers", "plan", "sandbox"},
    # The levers, for the variables that a setting needs in the environment; the measure of "warmed up".
    "trial": GROUND | {"allocators", "levers", "machine", "measure", "plan", "sandbox"},
    # The executor's port: a study answers in its place while a search is resumed.
    "study": GROUND | {"plan", "trial"},
    # Causes of slowness, from what was measured; does not use trials. Of the machine, what its drivers must be.
    "diagnose": GROUND | {"measure", "levers", "traces", "machine"},
    # Trials, their costs, and what is known so far; without the procedures.
    "experiment": SEARCH | {"diagnose", "traces", "objective"},
    # Trials on the nodes of a cluster: an executor of its own, over the local one of each node.
    "cluster": GROUND | {"trial", "machine", "runtime", "study", "__init__"},
    # What hotlap does on request.
    "procedures": SEARCH | {"experiment", "diagnose", "traces", "gain", "objective", "scaling"},
    # Reads files that a profiler wrote; does not use trials. Its result is records of its own.
    "traces": GROUND,
    # Predicts steps of many ranks by arithmetic; does not use trials.
    "scaling": GROUND | {"measure", "traces"},
    # Reads and edits training code as text; does not use runs.
    "source": GROUND,
    # Two runs side by side: reads what was measured of each, and measures nothing.
    "compare": GROUND | {"measure", "traces"},
    # Every study of a project, reduced to a row.
    "history": GROUND | {"study", "machine", "gain"},
    # The measured gain of a study's plan.
    "gain": GROUND | {"machine", "objective"},
    "render": GROUND | {"plan", "gain", "objective", "source", "traces", "diagnose", "compare", "history", "scaling"},
    # A study for other tools: tables, event files, runs of trackers.
    "export": GROUND | {"plan", "study", "render", "measure"},
    # Puts the rooms together, for `import hotlap` and for the command line.
    "api": SEARCH | {"cluster", "experiment", "procedures", "runtime", "gain", "objective", "source", "traces"},
    "cli": SEARCH
    | {
        "api",
        "experiment",
        "procedures",
        "objective",
        "render",
        "source",
        "traces",
        "scaling",
        "diagnose",
        "compare",
        "history",
        "export",
    },
    # Workloads that are run as a user's script is: they do not use hotlap.
    "demo": set(),
    "__init__": GROUND | {"api"},
    "__main__": {"cli"},
}

# Runs inside somebody else's process: small, quick to import. `sitecustomize` is the environment's own, passed on to.
RUNTIME_LIBRARIES = {"torch", "numpy", "msgspec", "psutil", "sitecustomize"}
STANDARD_LIBRARY = sys.stdlib_module_names

# The first checks files in several processes, which run nothing but that: no script, no program. The second runs the
# user's own pager.
OWN_PROCESSES = {"source/lint/pool.py", "cli/pager.py"}
STARTS_A_PROCESS = {
    "os.fork", "os.forkpty", "os.system", "os.popen", "os.posix_spawn", "os.posix_spawnp",
    "os.execv", "os.execve", "os.execvp", "os.execvpe", "os.execl", "os.execle", "os.execlp", "os.spawnv",
    "pty.fork", "pty.spawn", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell",
    "multiprocessing.Process", "multiprocessing.Pool", "multiprocessing.get_context",
    "concurrent.futures.ProcessPoolExecutor", "torch.multiprocessing.spawn", "torch.multiprocessing.Process",
}  # fmt: skip


def python_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def walk_at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those below ``if TYPE_CHECKING``, which never run."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for other in node.orelse:
                yield other
                yield from walk_at_run_time(other)
            continue
        yield node
        yield from walk_at_run_time(node)


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that a file imports when it runs."""
    package = ("hotlap", *path.relative_to(SOURCE).parts[:-1])
    for node in walk_at_run_time(parse(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def dotted(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def calls(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Call):
            yield node.lineno, dotted(node.func)


def test_the_walker_finds_what_it_must() -> None:
    """The checks below rest on these two helpers; a helper that finds nothing would pass everything."""
    tree = ast.parse("if TYPE_CHECKING:\n    import a\nelse:\n    import b\ndef f():\n    import c\n")
    seen = [node.names[0].name for node in walk_at_run_time(tree) if isinstance(node, ast.Import)]
    assert seen == ["b", "c"]
    of_plan = {module for _, module in imported_modules(SOURCE / "plan.py")}
    assert {"tomli_w", "hotlap.errors.PlanError", "hotlap.levers.api.validate"} <= of_plan


def test_every_room_is_listed() -> None:
    assert {room_of(path) for path in python_files()} <= set(MAY_IMPORT)


def test_imports_point_one_way() -> None:
    wrong = []
    for path in python_files():
        room = room_of(path)
        for line, module in imported_modules(path):
            if module.split(".")[0] != "hotlap":
                continue
            other = module.split(".")[1] if "." in module else "__init__"
            # `from hotlap import __version__` and the like are the package's own small facts.
            if other not in MAY_IMPORT[room] | {room, "__version__"}:
                wrong.append(f"{name_of(path)}:{line} imports {module}")
    assert not wrong


def test_runtime_needs_few_libraries() -> None:
    allowed = STANDARD_LIBRARY | RUNTIME_LIBRARIES | {"hotlap"}
    assert not [
        f"{name_of(path)}:{line} imports {module}"
        for path in (SOURCE / "runtime").rglob("*.py")
        for line, module in imported_modules(path)
        if module.split(".")[0] not in allowed
    ]


def test_processes_start_in_trial_alone() -> None:
    wrong = []
    for path in python_files():
        if room_of(path) in {"trial", "sandbox", "demo"} or name_of(path) in OWN_PROCESSES:
            continue
        named = [*imported_modules(path), *calls(path)]
        wrong += [f"{name_of(path)}:{line}: {name}" for line, name in named if name in STARTS_A_PROCESS]
        imports = [(line, name) for line, name in imported_modules(path) if name.split(".")[0] == "subprocess"]
        wrong += [f"{name_of(path)}:{line} imports {name}" for line, name in imports]
    assert not wrong


def test_printing_happens_in_cli_alone() -> None:
    assert not [
        f"{name_of(path)}:{line}: {name}"
        for path in python_files()
        if room_of(path) not in {"cli", "demo"}
        for line, name in calls(path)
        if name in {"print", "input", "builtins.print", "rich.print"}
    ]


def test_source_is_rewritten_in_one_place() -> None:
    assert not [
        f"{name_of(path)}:{line} imports {module}"
        for path in python_files()
        if not path.is_relative_to(SOURCE / "source" / "edits")
        for line, module in imported_modules(path)
        if module.split(".")[0] == "libcst"
    ]


def test_kinds_of_quality_are_distinguished_where_they_are_found_and_worded() -> None:
    """Everything else reads the verdict of a comparison's quality."""
    of_one_kind = ("records/", "measure/", "experiment/prove.py", "experiment/prove_outputs.py", "render/quality.py")
    found = [
        name_of(path)
        for path in python_files()
        for _, module in imported_modules(path)
        if module in ("hotlap.records.Parity", "hotlap.records.TaskQuality")
    ]
    assert "render/quality.py" in found
    # A check compares two trainings, and decides itself whether a difference is run-to-run noise.
    checks = ("procedures/check/numbers.py", "procedures/check/compare.py")
    assert not [it for it in found if not it.startswith(of_one_kind) and it not in checks]


def phases_spelt_out(path: Path) -> Iterator[int]:
    """Lines where all phases of a step but one are listed: in a literal, as arguments, or as fields of a class."""
    phases = set(records.STEP_PHASES)
    for node in ast.walk(parse(path)):
        names: set[object] = set()
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            names = {it.value for it in map(named_by, node.elts) if isinstance(it, ast.Constant)}
        elif isinstance(node, ast.Dict):
            names = {it.value for it in node.keys if isinstance(it, ast.Constant)}
        elif isinstance(node, ast.Call):
            names = {str(it.arg).removesuffix("_seconds") for it in node.keywords}
        elif isinstance(node, ast.ClassDef):
            fields = (it.target for it in node.body if isinstance(it, ast.AnnAssign))
            names = {ast.unparse(it).removesuffix("_seconds") for it in fields}
        if len(phases & names) >= len(phases) - 1:
            yield getattr(node, "lineno", 0)


def named_by(node: ast.expr) -> ast.expr:
    """The name that a pair begins with; of what is no pair, that itself."""
    return node.elts[0] if isinstance(node, ast.Tuple) and node.elts else node


def test_one_table_lists_the_phases_of_a_step() -> None:
    # The other file has the field names of an older format.
    allowed = ("records/phases.py", "study/migrations.py")
    found = [(name_of(path), line) for path in python_files() for line in phases_spelt_out(path)]
    assert {name for name, _ in found} >= set(allowed)
    assert [it for it in found if it[0] not in allowed] == []


def test_files_can_be_read_in_one_sitting() -> None:
    lines = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert not {name: count for name, count in lines.items() if count > LONGEST_FILE_LINES}


def test_no_except_swallows_everything() -> None:
    """Catching everything is allowed only in order to clean up and raise it again."""
    assert not [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ExceptHandler) and catches_all(node) and not raises_again(node)
    ]


def catches_all(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or dotted(kind).split(".")[-1] in {"Exception", "BaseException"} for kind in kinds)


def raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def all_records() -> list[type[records.Record]]:
    found = [it for _, it in inspect.getmembers(records, inspect.isclass) if issubclass(it, records.Record)]
    return sorted(found, key=lambda it: it.__name__)


def test_there_are_records() -> None:
    assert records.Study in all_records()
    assert len(all_records()) > 20


def test_every_record_is_frozen() -> None:
    assert not [it.__name__ for it in all_records() if not it.__struct_config__.frozen]
