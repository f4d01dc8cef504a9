"""Which lines run only with an accelerator, and the table of what ran where."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.device_lines import report
from bench.device_lines.branches import device_lines
from bench.device_lines.parts import Part, parts


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
        ("if torch.cuda.is_available():\n    g()\ndef g():\n    '''Text.'''\n    a()\n", {2, 5}),
        ("if torch.cuda.is_available():\n    g()\ng()\ndef g():\n    a()\n", {2}),
    ],
)
def test_lines_that_run_only_with_an_accelerator(tmp_path: Path, source: str, expected: set[int]) -> None:
    assert found(tmp_path, source) == expected


def test_what_ran_is_read_off_lines() -> None:
    part = Part("rule", "one", {"a.py": frozenset({3, 4})})
    assert part.ran({"a.py": {4, 9}}) and not part.ran({"a.py": {9}, "b.py": {3}}) and not part.ran({})


def test_lines_that_ran_nowhere_are_named() -> None:
    files = [report.File("a.py", lines=[1, 2, 3, 4], simulated=[1, 2], cpu=[2, 3])]
    assert report.share(files) == 0.75 and report.share(files, simulated_alone=True) == 0.5
    assert "| `a.py` | 4 | 2 | 4 |" in report.markdown([], files)


def test_every_part_has_statements_that_show_it() -> None:
    found = parts()
    assert {it.kind for it in found} == {"lever", "rule", "evidence", "phase"}
    assert [it.name for it in found if not any(it.statements.values())] == []


def test_what_ran_nowhere_is_marked_so() -> None:
    rows = [report.Row("lever", "loader", cpu=True, simulated=False), report.Row("ceiling", "flat", False, True)]
    text = report.markdown(rows, [])
    assert "| `loader` | yes | - | - |" in text and "| `flat` | - | yes | - |" in text
