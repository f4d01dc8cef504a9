"""Everything in the sources is reached from somewhere, by more than a test."""

from __future__ import annotations

import importlib.abc
import os
from pathlib import Path

from unused_code import Package, definition, parsed, unreached

REPOSITORY = Path(__file__).parents[1]

# Classes that are handed to other libraries as one of their own, without being derived from it.
IMITATED = {
    "hotlap.runtime.imports._AnnouncingLoader": importlib.abc.Loader,
    "hotlap.runtime.stand_ins.Entry": os.DirEntry,
}
FOR_NEWER_PYTHON = {"hotlap.runtime.stand_ins.Entry.is_junction"}  # os.DirEntry has it from 3.12 on


def test_nothing_in_the_sources_is_unused() -> None:
    package = Package.below(
        REPOSITORY / "src" / "hotlap", REPOSITORY / "bench", REPOSITORY / "docs" / "_site", imitated=IMITATED
    )
    assert set(unreached(package)) <= FOR_NEWER_PYTHON


def unused(folder: Path, **files: str) -> list[str]:
    """What is not reached in a package of these modules."""
    for name, text in files.items():
        path = folder / "pack" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return unreached(Package(modules=tuple(definition(name, "", tree) for name, tree in parsed(folder / "pack"))))


def test_a_function_that_only_calls_itself_is_unused(tmp_path: Path) -> None:
    assert unused(tmp_path, one="def again():\n    again()\n") == ["pack.one.again"]


def test_functions_that_call_each_other_are_unused(tmp_path: Path) -> None:
    assert unused(tmp_path, one="def a():\n    b()\ndef b():\n    a()\n") == ["pack.one.a", "pack.one.b"]


def test_a_function_is_distinguished_from_another_modules_of_its_name(tmp_path: Path) -> None:
    found = unused(
        tmp_path, one="def same(): ...\n", two="def same(): ...\n", use="from pack.one import same\nsame()\n"
    )
    assert found == ["pack.two.same"]


def test_an_import_alone_uses_nothing(tmp_path: Path) -> None:
    assert unused(tmp_path, one="LIMIT = 3\n", use="from pack.one import LIMIT\n") == ["pack.one.LIMIT"]


def test_what_a_module_passes_on_is_followed(tmp_path: Path) -> None:
    files = {"one": "def f(): ...\n", "front": "from pack.one import f\n", "use": "import pack.front as it\nit.f()\n"}
    assert unused(tmp_path, **files) == []


def test_a_method_is_used_where_an_attribute_of_its_name_is_read(tmp_path: Path) -> None:
    source = (
        "class A:\n    def used(self): ...\n    def unused(self): ...\n    LIMIT = 1\ndef f(a):\n    a.used()\nA, f\n"
    )
    assert unused(tmp_path, one=source) == ["pack.one.A.LIMIT", "pack.one.A.unused"]


def test_what_python_and_other_libraries_call_is_used(tmp_path: Path) -> None:
    source = "import ast\nclass V(ast.NodeVisitor):\n    def __init__(self): ...\n    def visit_Call(self, node): ...\n"
    source += "    def generic_visit(self, node): ...\n    def visit_nothing(self): ...\nclass W(V):\n"
    source += "    def visit_Name(self, node): ...\nV, W\n"
    assert unused(tmp_path, one=source) == ["pack.one.V.visit_nothing"]


def test_what_is_found_by_looking_into_a_folder_is_used_by_attribute(tmp_path: Path) -> None:
    found = unused(
        tmp_path,
        **{"rules/one": "def check(): ...\ndef forgotten(): ...\n", "rules/__init__": ""},
        use="import importlib\nfor it in 'one',:\n    importlib.import_module(f'pack.rules.{it}').check()\n",
    )
    assert found == ["pack.rules.one.forgotten"]


def test_a_folder_whose_path_is_read_is_searched(tmp_path: Path) -> None:
    looks = "import pkgutil\nimport pack.rules as folder\n"
    looks += "[__import__(it.name).check() for it in pkgutil.iter_modules(folder.__path__)]\n"
    one = "def check(): ...\ndef forgotten(): ...\n"
    assert unused(tmp_path, **{"rules/one": one, "rules/__init__": ""}, use=looks) == ["pack.rules.one.forgotten"]
