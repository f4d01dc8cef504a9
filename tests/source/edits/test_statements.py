"""Statements wrapped, inserted, taken out and dissolved."""

from __future__ import annotations

import textwrap

import pytest
from source_editing import apply, edited, expression, refusal, statement

from hotlap.source.edits.kinds import (
    Code,
    InsertAfter,
    InsertAtTop,
    InsertBefore,
    RemoveStatement,
    SetKeyword,
    Unwrap,
    WrapStatements,
)
from hotlap.source.edits.refusals import CannotEdit

REGION = Code("open('f')")


def dedented(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def wrap(source: str, first: str, last: str) -> WrapStatements:
    return WrapStatements(statement(source, first), statement(source, last), REGION)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a()\nb()\n", "with open('f'):\n    a()\n    b()\n"),
        ("x = 1\n\n# why\na()\nb()\ny = 2\n", "x = 1\n\n# why\nwith open('f'):\n    a()\n    b()\ny = 2\n"),
        ("if x:\n\ta()\n\tb()\n", "if x:\n\twith open('f'):\n\t\ta()\n\t\tb()\n"),
        ("if x:\n  a()\n  b()\n", "if x:\n  with open('f'):\n    a()\n    b()\n"),
        ("a(); b()\n", "with open('f'):\n    a()\n    b()\n"),
        ("z(); a(); b(); y()\n", "z()\nwith open('f'):\n    a()\n    b()\ny()\n"),
        ("if x: a(); b()\n", "if x:\n    with open('f'):\n        a()\n        b()\n"),
        ("if x: a(); b()  # why\nz()\n", "if x:\n    with open('f'):\n        a()\n        b()  # why\nz()\n"),
        ('a("""x\n  y\n""")\nb()\n', 'with open(\'f\'):\n    a("""x\n  y\n""")\n    b()\n'),
        ("a(1,\n  2)\nb()\n", "with open('f'):\n    a(1,\n      2)\n    b()\n"),
        ("a()\r\nb()\r\n", "with open('f'):\r\n    a()\r\n    b()\r\n"),
        ("a()\nb()", "with open('f'):\n    a()\n    b()"),
        (
            "while x:\n    a()\n    # note\n    if y:\n        break\n    b()\nelse:\n    z()\n",
            "while x:\n    with open('f'):\n        a()\n        # note\n        if y:\n            break\n"
            "        b()\nelse:\n    z()\n",
        ),
    ],
)
def test_statements_put_into_a_with(before: str, after: str) -> None:
    assert edited(before, wrap(before, "a(", "b(")) == after


def test_nested_and_overlapping_regions() -> None:
    source = "a()\nb()\nc()\n"
    nested = edited(source, wrap(source, "a(", "c("), wrap(source, "b(", "b("), wrap(source, "a(", "c("))
    assert nested == dedented("""
        with open('f'):
            with open('f'):
                a()
                with open('f'):
                    b()
                c()
        """)
    crossing = apply(source, wrap(source, "a(", "b("), wrap(source, "b(", "c("))
    assert [it.kind for it in crossing.refused] == ["conflict"]


def test_regions_cover_one_block_only() -> None:
    source = "a()\nif x:\n    b()\n"
    assert refusal(source, wrap(source, "a(", "b(")) == "shape"
    assert refusal("b()\na()\n", wrap("b()\na()\n", "a(", "b(")) == "shape"


def test_what_is_inserted_next_to_a_region_stays_outside() -> None:
    source = "a()\nb()\n"
    new = edited(
        source,
        InsertBefore(statement(source, "a("), Code("x = 1")),
        InsertAfter(statement(source, "b("), Code("y = 2")),
        InsertAfter(statement(source, "a("), Code("z = 3")),
        wrap(source, "a(", "b("),
    )
    assert new == "x = 1\nwith open('f'):\n    a()\n    z = 3\n    b()\ny = 2\n"


def test_edits_inside_a_region_hold() -> None:
    source = "a()\nb(1)\n"
    new = edited(source, wrap(source, "a(", "b("), SetKeyword(expression(source, "b(1)"), "k", Code("2")))
    assert new == "with open('f'):\n    a()\n    b(1, k=2)\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x()\na()\ny()\n", "x()\ny()\n"),
        ("if x:\n    a()\n", "if x:\n    pass\n"),
        ("if x: a()\n", "if x:\n    pass\n"),
        ("if x: a(); y()\n", "if x:\n    y()\n"),
        ("a()\n", ""),
        ("x(); a(); y()\n", "x()\ny()\n"),
        ("# why\na()  # gone\ny()\n", "# why\ny()\n"),
        ("x()\n\n# why\na()\n\ny()\n", "x()\n\n# why\n\ny()\n"),
        ("x()\n\na()\n\ny()\n", "x()\n\ny()\n"),
        ("def f():\n    x()\n\n    # why\n    a()\n\n\ny()\n", "def f():\n    x()\n    # why\n\n\ny()\n"),
        ("try:\n    a()\nfinally:\n    y()\n", "try:\n    pass\nfinally:\n    y()\n"),
    ],
)
def test_taking_a_statement_out(before: str, after: str) -> None:
    assert edited(before, RemoveStatement(statement(before, "a("))) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a()\n", "new()\na()\n"),
        ("x()\n\n# why\na()\n", "x()\n\nnew()\n# why\na()\n"),
        ("x(); a()\n", "x()\nnew()\na()\n"),
        ("if x: a()\n", "if x:\n    new()\n    a()\n"),
        ("@d\ndef a(): ...\n", "new()\n@d\ndef a(): ...\n"),
        ("class C:\n\ta = 1\n", "class C:\n\tnew()\n\ta = 1\n"),
        ("a()", "new()\na()"),
    ],
)
def test_inserting_before(before: str, after: str) -> None:
    head = "from m import new\n"
    source = head + before
    beginning = "def a" if "def a" in before else "a"
    assert edited(source, InsertBefore(statement(source, beginning), Code("new()"))) == head + after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a()  # why\nx()\n", "a()  # why\nnew()\nx()\n"),
        ("a(); x()\n", "a()\nnew()\nx()\n"),
        ("if x:\n    a()\n\nx()\n", "if x:\n    a()\n    new()\n\nx()\n"),
        ("a()", "a()\nnew()"),
    ],
)
def test_inserting_after(before: str, after: str) -> None:
    head = "from m import new\n"
    source = head + before
    assert edited(source, InsertAfter(statement(source, "a("), Code("new()"))) == head + after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("with x:\n    a()\n    b()\nc()\n", "a()\nb()\nc()\n"),
        ("# why\nwith x: a()  # so\n", "# why\na()  # so\n"),
        ("if y:\n    with x:\n        a()\n", "if y:\n    a()\n"),
    ],
)
def test_dissolving_a_block(before: str, after: str) -> None:
    assert edited(before, Unwrap(statement(before, "with"))) == after


def test_only_blocks_that_always_run_whole_are_dissolved() -> None:
    source = "if x:\n    a()\nelse:\n    b()\n"
    assert refusal(source, Unwrap(statement(source, "if"))) == "shape"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch\n\n\nx = 1\n", "import torch\n\ntorch.set()\n\n\nx = 1\n"),
        ("x = 1\n", "import torch\n\ntorch.set()\nx = 1\n"),
        ('"""Doc."""\nx = 1\n', '"""Doc."""\n\nimport torch\n\ntorch.set()\nx = 1\n'),
        (
            "import torch\nimport os\nx = 1\nimport late\n",
            "import torch\nimport os\n\ntorch.set()\nx = 1\nimport late\n",
        ),
        ("import os\nos.x = 1\nimport torch\n", "import os\nos.x = 1\nimport torch\n\ntorch.set()\n"),
        ("import torch\n", "import torch\n\ntorch.set()\n"),
    ],
)
def test_inserting_at_the_top(before: str, after: str) -> None:
    edit = InsertAtTop(Code("torch.set()", needs=("torch.set",)))
    new = edited(before, edit)
    assert new == after
    assert edited(new, edit) == new


def test_an_elif_is_no_statement_of_a_block() -> None:
    source = "if x:\n    a()\nelif y:\n    b()\n"
    import ast

    from hotlap.source.edits.kinds import Span

    inner = Span.of(ast.parse(source).body[0].orelse[0])  # type: ignore[attr-defined]
    for edit in (RemoveStatement(inner), InsertBefore(inner, Code("x")), WrapStatements(inner, inner, REGION)):
        assert refusal(source, edit) == "shape"


@pytest.mark.parametrize("source", ["x = (", "\0", "if x:\npass\n"])
def test_text_that_is_no_python(source: str) -> None:
    with pytest.raises(CannotEdit) as error:
        apply(source)
    assert error.value.kind == "not-parsable"
