"""Which lines run only with an accelerator, and the table of what ran where."""

from __future__ import annotations

import dis
import json
import os
import subprocess
import sys
from pathlib import Path
from types import CodeType

import msgspec
import pytest
from bench.device_lines import report
from bench.device_lines.branches import SOURCES, device_lines, lines_elsewhere
from bench.device_lines.hardware import found_on_simulated, ran_on_hardware
from bench.device_lines.listener import Listener
from bench.device_lines.parts import CEILINGS, Part, Ran, parts
from bench.device_lines.pieces import Pieces, files_of_tests
from bench.device_lines.runs import RUNS, files_of
from simulated.environment import SITE
from simulated.lines import with_probes

from hotlap.records import PhaseAccount

TABLE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "device-lines.json"


def found(folder: Path, source: str) -> set[int]:
    (folder / "one.py").write_text(source, encoding="utf-8")
    return device_lines(folder).get("one.py", set())


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if device == 'cuda':\n    a()\nelse:\n    b()\n", {2}),
        ("if device != 'cuda':\n    a()\nelse:\n    b()\n", {4}),
        ("if tensor.is_cuda and is_large:\n    a()\nelse:\n    b()\n", {2}),
        ("if tensor.is_cuda or is_large:\n    a()\nelse:\n    b()\n", set()),
        ("if not machine.accelerators:\n    a()\nelse:\n    b()\n", {4}),
        ("def f():\n    if not torch.cuda.is_available():\n        return 1\n    return 2\n", {4}),
        ("def f():\n    if torch.cuda.is_available():\n        return 1\n    return 2\n", {3}),
        ("if accelerator_kind == 'cpu':\n    a()\nelse:\n    b()\n", {4}),
        ("torch.cuda.synchronize()\nrate = 1\n", {1}),
        ("found = [\n    torch.cuda.Stream(),\n]\n", {1}),
        ("import pynvml as nvml\ndef f(handle):\n    return handle.name\n", {3}),
        ("def f(handle):\n    return handle.name\n", set()),
        ("if torch.cuda.is_available():\n    g()\ndef g():\n    '''Text.'''\n    a()\n", {2, 5}),
        ("if torch.cuda.is_available():\n    g()\ng()\ndef g():\n    a()\n", {2}),
    ],
)
def test_lines_that_run_only_with_an_accelerator(tmp_path: Path, source: str, expected: set[int]) -> None:
    assert found(tmp_path, source) == expected


@pytest.mark.parametrize(("names", "expected"), [(("f",), {2}), (("A",), {6, 7}), (("A.g",), {7}), (("",), {2, 6, 7})])
def test_functions_and_classes_can_be_named(tmp_path: Path, names: tuple[str, ...], expected: set[int]) -> None:
    """A class counts with its methods: its own statements run when it is imported."""
    source = "def f():\n    a()\nclass A:\n    b = 1\n    def h(self):\n        b()\n    def g(self): c()\n"
    (tmp_path / "one.py").write_text(source, encoding="utf-8")
    assert device_lines(tmp_path, named={"one.py": names})["one.py"] == expected


def test_a_name_that_is_not_there_any_more_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("def f(): a()\n", encoding="utf-8")
    with pytest.raises(LookupError, match=r"one.py has no g"):
        device_lines(tmp_path, named={"one.py": ("g",)})


@pytest.fixture(scope="module")
def own_lines() -> dict[str, set[int]]:
    return device_lines()


def test_lines_of_other_makers_devices_are_counted_apart(own_lines: dict[str, set[int]]) -> None:
    elsewhere = lines_elsewhere()
    assert elsewhere
    assert all(lines and not lines & own_lines[file] for (file, _), lines in elsewhere.items())


def test_every_device_line_has_a_probe(own_lines: dict[str, set[int]]) -> None:
    """One without would count as never run."""
    for file, lines in own_lines.items():
        code = with_probes((SOURCES / file).read_bytes(), file)
        assert lines <= probed(code), file


def probed(code: CodeType) -> set[int]:
    """The lines whose probes are in the code of a module."""
    found = set()
    before = None
    for it in dis.get_instructions(code):
        if before == "__ran__" and it.opname == "LOAD_CONST":
            found.add(it.argval)
        before = it.argval
    return found.union(*(probed(it) for it in code.co_consts if isinstance(it, CodeType)))


def test_probes_change_nothing_but_tell_each_line_once(tmp_path: Path) -> None:
    package = tmp_path / "src" / "hotlap"
    package.mkdir(parents=True)
    source = '"""Page."""\nfrom __future__ import annotations\n' + PROBED
    (package / "__init__.py").write_text(source, encoding="utf-8")
    with Listener() as listener:
        path = os.pathsep.join([str(SITE), str(tmp_path / "src")])
        asked = "import hotlap; print(hotlap.__doc__, hotlap.f.__doc__, [hotlap.f(it) for it in (0, 0, 5)])"
        done = subprocess.run(
            [sys.executable, "-c", asked],
            env={**os.environ, **listener.variables, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout == "Page. Text. [1, 1, 3]\n"
    assert listener.ran == {"__init__.py": {5, 6, 7, 8, 10}}


PROBED = """\
def f(value: int) -> int:
    \"\"\"Text.\"\"\"
    total = value
    if not value:
        return 1
    elif value < 3:
        return 2
    return 3
"""


def test_what_ran_is_read_off_lines() -> None:
    part = Part("rule", "one", {"a.py": frozenset({3, 4})})
    assert part.ran({"a.py": {4, 9}}) and not part.ran({"a.py": {9}, "b.py": {3}}) and not part.ran({})


def test_lines_that_ran_nowhere_are_named() -> None:
    files = [report.File("a.py", lines=[1, 2, 3, 4], simulated=[1, 2], cpu=[2, 3])]
    assert report.share(files) == 0.75 and report.share(files, simulated_alone=True) == 0.5
    assert "| `a.py` | 4 | 2 | 4 |" in report.markdown([], files)
    many = report.File("b.py", lines=[1, 2, 3, 5], simulated=[], cpu=[])
    assert report.missing([*files, many]) == "    4 b.py: 1-3, 5\n    1 a.py: 4\n"


def test_every_part_has_statements_that_show_it() -> None:
    found = parts()
    assert {it.kind for it in found} == {"lever", "rule", "evidence", "phase"}
    assert {"data-wait", "other", "evaluation"} <= {it.name for it in found if it.kind == "phase"}
    assert [it.name for it in found if not any(it.statements.values())] == []


def test_what_ran_nowhere_is_marked_so() -> None:
    rows = [report.Row("lever", "loader", cpu=True, simulated=False), report.Row("ceiling", "flat", False, True)]
    text = report.markdown(rows, [])
    assert "| `loader` | yes | - | never |" in text and "| `flat` | - | yes | never |" in text
    assert "nothing ever ran on real hardware" in text


def test_in_the_table_everything_ran_somewhere() -> None:
    """As of its date: what is newer waits for the next `make device-lines`, and is listed as skipped."""
    if not TABLE.exists():
        pytest.skip("`make device-lines` has not written the table yet")
    data = json.loads(TABLE.read_text(encoding="utf-8"))["data"]
    rows = [report.Row(**it) for it in data["parts"]]
    nowhere = [it.name for it in rows if not it.ran]
    if nowhere and data["untold"]:
        pytest.skip(f"{len(data['untold'])} files of tests are missing, and what only they run: {', '.join(nowhere)}")
    assert nowhere == []


def test_the_table_covers_the_lines_of_devices() -> None:
    """As of its date. Tests with the simulated device alone, and with those on stand-ins."""
    if not TABLE.exists():
        pytest.skip("`make device-lines` has not written the table yet")
    files = [report.File(**it) for it in json.loads(TABLE.read_text(encoding="utf-8"))["data"]["lines"]]
    assert report.share(files) >= 0.95


def test_the_table_has_every_part() -> None:
    if not TABLE.exists():
        pytest.skip("`make device-lines` has not written the table yet")
    rows = [report.Row(**it) for it in json.loads(TABLE.read_text(encoding="utf-8"))["data"]["parts"]]
    known = {(it.kind, it.name) for it in parts()} | {("ceiling", it) for it in CEILINGS}
    if newer := sorted(known - {(it.kind, it.name) for it in rows}):
        pytest.skip(f"not yet run: {', '.join(f'{kind} {name}' for kind, name in newer)}")


def toy(root: Path) -> None:
    (root / "src" / "hotlap").mkdir(parents=True)
    (root / "src" / "hotlap" / "one.py").write_text("a = 1\n", encoding="utf-8")
    (root / "tests").mkdir()
    for name in ("test_a.py", "test_b.py", "test_c.py"):
        (root / "tests" / name).write_text("", encoding="utf-8")


def test_an_interrupted_run_loses_one_file_of_tests(tmp_path: Path) -> None:
    toy(tmp_path)
    files, pieces, traced = files_of_tests(tmp_path, ["tests"]), Pieces(tmp_path / "pieces", tmp_path), []

    def trace(tests: str) -> tuple[bool, Ran]:
        traced.append(tests)
        if traced == files[:2]:
            raise KeyboardInterrupt
        return tests != "tests/test_c.py", {"one.py": {1}}

    with pytest.raises(KeyboardInterrupt):
        list(pieces.complete(files, trace))
    first = [it.passed for it in pieces.complete(files, trace)]
    assert first == [True, True, False] and traced == [*files[:2], *files[1:]]
    list(pieces.complete(files, trace, processes=2))
    assert traced[4:] == ["tests/test_c.py"], "what failed is traced again"


def test_lines_of_sources_that_changed_are_traced_again(tmp_path: Path) -> None:
    toy(tmp_path)
    pieces = Pieces(tmp_path / "pieces", tmp_path)
    list(pieces.complete(["tests/test_a.py"], lambda _: (True, {"one.py": {1}})))
    assert pieces.kept("tests/test_a.py") is not None
    (tmp_path / "src" / "hotlap" / "one.py").write_text("\na = 1\n", encoding="utf-8")
    assert pieces.kept("tests/test_a.py") is None


GPU_RESULT = {
    "machine": {"ceilings": {"memory_bytes_per_second": 2e12, "flat": [], "threads": 2}},
    "naive": {
        "lstm": {
            "plan": {"settings": [{"lever": "mixed-precision", "values": []}]},
            "before": msgspec.to_builtins(PhaseAccount(wall=0.1, phases=(("data_wait", 0.02), ("forward", 0.0)))),
            "after": None,
        }
    },
}


def result(folder: Path, name: str, data: object, machine: str = "AMD EPYC, NVIDIA H100") -> None:
    (folder / name).write_text(json.dumps({"machine": machine, "data": data}), encoding="utf-8")


def test_what_ran_on_real_hardware_is_read_off_its_results(tmp_path: Path) -> None:
    known = [Part("evidence", "MemoryWatch", {}), Part("rule", "launch-bound", {})]
    assert ran_on_hardware(tmp_path, known) == set()
    result(tmp_path, "gpu.json", GPU_RESULT)
    assert {
        ("lever", "mixed-precision"),
        ("ceiling", "memory_bytes_per_second"),
        ("phase", "data-wait"),
    } <= ran_on_hardware(tmp_path, known)
    assert ("phase", "forward") not in ran_on_hardware(tmp_path, known)
    result(tmp_path, "findings-gpu.json", {"scripts": [{"found": ["launch-bound"], "trouble": ""}]})
    assert {("rule", "launch-bound"), ("evidence", "MemoryWatch")} <= ran_on_hardware(tmp_path, known)


def test_what_ran_on_a_simulated_device_did_not_run_on_hardware(tmp_path: Path) -> None:
    scripts = {"scripts": [{"found": ["launch-bound"], "trouble": ""}]}
    result(tmp_path, "findings-gpu.json", scripts, "Xeon, a simulated NVIDIA A100: there is no such device")
    assert ran_on_hardware(tmp_path, [Part("evidence", "MemoryWatch", {})]) == set()
    assert found_on_simulated(tmp_path) == set()
    result(tmp_path, "findings-simulated.json", scripts, "Xeon, a simulated NVIDIA A100: there is no such device")
    assert found_on_simulated(tmp_path) == {("rule", "launch-bound")}


def test_the_files_of_each_run_are_there() -> None:
    assert all(files_of(it) for it in RUNS.values())
    assert files_of_tests(Path(__file__).parents[1], ["tests/trial"], "DeviceFreezer|Suspender")


def test_a_table_that_lacks_files_of_tests_says_which() -> None:
    apart = report.Elsewhere("machine/accelerators.py", "_amd", "AMD: copied files", lines=7, ran=6)
    text = report.markdown([], [], [apart], ["tests/gpu/test_a.py"])
    assert "**Incomplete**" in text and "`tests/gpu/test_a.py`" in text
    assert "| `machine/accelerators.py`, `_amd` | 7 | 6 | AMD: copied files |" in text
    assert "Incomplete" not in report.markdown([], [])
