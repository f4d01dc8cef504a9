"""Arguments of calls and entries of dictionaries: before and after."""

from __future__ import annotations

from pathlib import Path

import pytest
from source_editing import edited, expression, refusal

from hotlap.source.edits.kinds import Code, RemoveKeyword, SetEntry, SetKeyword

WORKERS_POSITION = 5
SOURCES = str(Path(__file__).parents[3] / "src")


def set_workers(source: str, call: str, value: str = "4") -> SetKeyword:
    return SetKeyword(expression(source, call), "num_workers", Code(value), WORKERS_POSITION)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()\n", "f(num_workers=4)\n"),
        ("f( )\n", "f( num_workers=4)\n"),
        ("f(ds)\n", "f(ds, num_workers=4)\n"),
        ("f(ds,)\n", "f(ds, num_workers=4,)\n"),
        ("f(ds, a = 1)\n", "f(ds, a = 1, num_workers=4)\n"),
        ("f(ds, num_workers=0)\n", "f(ds, num_workers=4)\n"),
        ("f(ds, num_workers = 0 , b=2)\n", "f(ds, num_workers = 4 , b=2)\n"),
        ("f(ds, num_workers=(0))\n", "f(ds, num_workers=(4))\n"),
        ("f(ds, num_workers=a + b)\n", "f(ds, num_workers=4)\n"),
        ("f(a, b, c, d, e, 0, g)\n", "f(a, b, c, d, e, 4, g)\n"),
        ("f(a, b, c, d, e)\n", "f(a, b, c, d, e, num_workers=4)\n"),
        ("f(\n    ds\n)\n", "f(\n    ds,\n    num_workers=4\n)\n"),
        ("f(\n    ds,\n)\n", "f(\n    ds,\n    num_workers=4,\n)\n"),
        ("f(\n    ds,  # set\n)\n", "f(\n    ds,  # set\n    num_workers=4,\n)\n"),
        ("f(\n    ds,\n    a=1  # one\n)\n", "f(\n    ds,\n    a=1,  # one\n    num_workers=4\n)\n"),
        ("f(ds,\n  a=1)\n", "f(ds,\n  a=1,\n  num_workers=4)\n"),
        ("f(ds, a=1,\n  b=2, c=3)\n", "f(ds, a=1,\n  b=2, c=3, num_workers=4)\n"),
        ("f(x for x in y)\n", "f((x for x in y), num_workers=4)\n"),
        ("f((x for x in y))\n", "f((x for x in y), num_workers=4)\n"),
        ("f(ds, *rest, num_workers=0)\n", "f(ds, *rest, num_workers=4)\n"),
        ("f(ds, num_workers=0, **more)\n", "f(ds, num_workers=4, **more)\n"),
        ("def g():\n\tf(\n\t\tds,\n\t)\n", "def g():\n\tf(\n\t\tds,\n\t\tnum_workers=4,\n\t)\n"),
        ("a = f(ds); b = 1\n", "a = f(ds, num_workers=4); b = 1\n"),
        ("é = f('ü', ds)\n", "é = f('ü', ds, num_workers=4)\n"),
        ("if x:\r\n    f(ds,\r\n      a=1)\r\n", "if x:\r\n    f(ds,\r\n      a=1,\r\n      num_workers=4)\r\n"),
        ("f(ds)", "f(ds, num_workers=4)"),
        ("x = [f(ds) for _ in y]\n", "x = [f(ds, num_workers=4) for _ in y]\n"),
    ],
)
def test_setting_a_keyword(before: str, after: str) -> None:
    start = before.index("f(")
    call = before[start : before.rindex(")") + 1] if "[" not in before else "f(ds)"
    assert edited(before, set_workers(before, call)) == after


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("f(ds, **more)\n", "hidden-arguments"),
        ("f(*all)\n", "hidden-arguments"),
        ("f(a, *rest)\n", "hidden-arguments"),
    ],
)
def test_arguments_that_cannot_be_seen(source: str, kind: str) -> None:
    assert refusal(source, set_workers(source, source.strip())) == kind


def test_a_star_behind_what_is_passed_by_position_hides_nothing() -> None:
    source = "f(a, b, c, d, e, 0, *rest)\n"
    assert edited(source, set_workers(source, source.strip())) == "f(a, b, c, d, e, 4, *rest)\n"


def test_a_keyword_that_is_only_to_be_replaced() -> None:
    source = "f(ds)\n"
    edit = SetKeyword(expression(source, "f(ds)"), "set_to_none", Code("True"), only_if_present=True)
    assert edited(source, edit) == source


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(ds, num_workers=0)\n", "f(ds)\n"),
        ("f(num_workers=0)\n", "f()\n"),
        ("f(num_workers=0, a=1)\n", "f(a=1)\n"),
        ("f(\n    ds,\n    num_workers=0,\n)\n", "f(\n    ds,\n)\n"),
        ("f(\n    ds,\n    num_workers=0\n)\n", "f(\n    ds\n)\n"),
        ("f(ds)\n", "f(ds)\n"),
        ("f(a, b, c, d, e, 0)\n", "f(a, b, c, d, e)\n"),
    ],
)
def test_taking_a_keyword_out(before: str, after: str) -> None:
    edit = RemoveKeyword(expression(before, before.strip()), "num_workers", WORKERS_POSITION)
    assert edited(before, edit) == after


def test_positions_of_others_do_not_move() -> None:
    source = "f(a, b, c, d, e, 0, g)\n"
    edit = RemoveKeyword(expression(source, source.strip()), "num_workers", WORKERS_POSITION)
    assert refusal(source, edit) == "positional"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("d = {}\n", 'd = {"num_workers": 4}\n'),
        ("d = {'a': 1}\n", "d = {'a': 1, 'num_workers': 4}\n"),
        ('d = {"num_workers": 0, "a": 1}\n', 'd = {"num_workers": 4, "a": 1}\n'),
        ('d = {\n    "a": 1,  # one\n}\n', 'd = {\n    "a": 1,  # one\n    "num_workers": 4,\n}\n'),
        ('d = {\n    "a": 1\n}\n', 'd = {\n    "a": 1,\n    "num_workers": 4\n}\n'),
        ('d = {"a": 1,\n     "b": 2}\n', 'd = {"a": 1,\n     "b": 2,\n     "num_workers": 4}\n'),
    ],
)
def test_setting_an_entry(before: str, after: str) -> None:
    edit = SetEntry(expression(before, before[4:].strip()), "num_workers", Code("4"))
    assert edited(before, edit) == after


@pytest.mark.parametrize("source", ["d = {**more}\n", "d = {key: 1}\n"])
def test_keys_that_cannot_be_read(source: str) -> None:
    assert refusal(source, SetEntry(expression(source, source[4:].strip()), "a", Code("1"))) == "shape"


def test_several_edits_of_one_call() -> None:
    source = "f(\n    g(ds),\n    a=1,\n)\n"
    inner, outer = expression(source, "g(ds)"), expression(source, source.strip())
    new = edited(
        source,
        (SetKeyword(outer, "b", Code("2")), SetKeyword(outer, "c", Code("3"))),
        SetKeyword(inner, "d", Code("4")),
        RemoveKeyword(outer, "a"),
    )
    assert new == "f(\n    g(ds, d=4),\n    b=2,\n    c=3,\n)\n"


def test_the_same_value_twice_is_no_conflict_and_another_is() -> None:
    source = "f(ds)\n"
    call = expression(source, "f(ds)")
    assert edited(source, SetKeyword(call, "a", Code("1")), SetKeyword(call, "a", Code("1"))) == "f(ds, a=1)\n"
    from source_editing import apply

    result = apply(source, SetKeyword(call, "a", Code("1")), SetKeyword(call, "a", Code("2")))
    assert result.text == "f(ds, a=1)\n"
    assert [(it.index, it.kind) for it in result.refused] == [(1, "conflict")]


@pytest.mark.parametrize("indent", ["", "    "])
def test_a_line_that_gets_too_long_is_broken(indent: str) -> None:
    head = "if x:\n" if indent else ""
    call = f"f({'a' * 40}, {'b' * 40})"
    source = f"{head}{indent}loader = {call}  # why\n"
    at = expression(source, call)
    new = edited(source, SetKeyword(at, "num_workers", Code("4")), SetKeyword(at, "pin_memory", Code("True")))
    pad = " " * len(f"{indent}loader = f(")
    line = f"{indent}loader = {call[:-1]},\n{pad}num_workers=4, pin_memory=True)  # why\n"
    assert new == head + line


def test_without_libcst_it_is_said_what_to_install() -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['libcst'] = None\n"
        "import hotlap.source.edits.kinds, hotlap.levers.api as api; api.all_levers()\n"
        "from hotlap.errors import UsageError\n"
        "try:\n    import hotlap.source.edits.apply\n"
        "except UsageError as error:\n    print(error.remedy)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": SOURCES})
    assert 'pip install "hotlap[source]"' in done.stdout, done.stderr
