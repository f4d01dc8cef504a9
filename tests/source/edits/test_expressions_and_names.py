"""Expressions replaced and wrapped, and the names that new code needs."""

from __future__ import annotations

import pytest
from source_editing import apply, edited, expression, refusal, statement

from hotlap.source.edits.apply import apply_changes
from hotlap.source.edits.kinds import (
    Code,
    InsertAtTop,
    InsertBefore,
    ReplaceExpression,
    SetKeyword,
    WrapExpression,
    WrapStatements,
)

AUTOCAST = Code("torch.autocast('cuda')", needs=("torch.autocast",))
COMPILED = Code("torch.compile(_)", needs=("torch.compile",))


@pytest.mark.parametrize(
    ("before", "piece", "code", "after"),
    [
        ("y = x + 1\n", "x", "a", "y = a + 1\n"),
        ("y = x * 2\n", "x", "a + b", "y = (a + b) * 2\n"),
        ("y = x.z\n", "x", "a + b", "y = (a + b).z\n"),
        ("y = x\n", "x", "a + b", "y = a + b\n"),
        ("y = (x)\n", "x", "a + b", "y = (a + b)\n"),
        ("f(x)\n", "x", "lambda: a", "f((lambda: a))\n"),
        ("y = (\n    x  # why\n)\n", "x", "a", "y = (\n    a  # why\n)\n"),
        ("y = x, 1\n", "x, 1", "a, b", "y = a, b\n"),
        ("y = (x, 1)\n", "(x, 1)", "a", "y = a\n"),
        ("y = -x\n", "x", "a ** b", "y = -(a ** b)\n"),
    ],
)
def test_replacing_an_expression(before: str, piece: str, code: str, after: str) -> None:
    source = f"a = b = x = 0\n{before}"
    number = 1 if piece == "x" else 0
    assert edited(source, ReplaceExpression(expression(source, piece, number), Code(code))) == f"a = b = x = 0\n{after}"


@pytest.mark.parametrize(
    ("before", "piece", "code", "after"),
    [
        ("m = Net()\n", "Net()", "g(_)", "m = g(Net())\n"),
        ("m = Net().to(d)\n", "Net().to(d)", "_.half()", "m = Net().to(d).half()\n"),
        ("m = a or b\n", "a or b", "_.half()", "m = (a or b).half()\n"),
        ("m = a or b\n", "a or b", "g(_, 1)", "m = g(a or b, 1)\n"),
        ("m = Net(\n    1,  # one\n)\n", "Net(\n    1,  # one\n)", "g(_)", "m = g(Net(\n    1,  # one\n))\n"),
        ("m = (yield)\n", "yield", "g(_)", "m = g((yield))\n"),
        ("m = (x for x in y)\n", "(x for x in y)", "g(_, 1)", "m = g((x for x in y), 1)\n"),
        ("m = await f()\n", "f()", "g(_)", "m = await g(f())\n"),
    ],
)
def test_wrapping_an_expression(before: str, piece: str, code: str, after: str) -> None:
    head, body = "def h(g):\n", f"    {before}".replace("\n    ", "\n        ")
    if "await" in before:
        head = "async def h(g):\n"
    source = head + body
    expected = head + f"    {after}".replace("\n    ", "\n        ")
    if "\n)" in before:
        source = f"g = 1\n{before}"
        expected = f"g = 1\n{after}"
    assert edited(source, WrapExpression(expression(source, piece), Code(code))) == expected


def test_wraps_and_edits_within_compose() -> None:
    source = "import torch\nmodel = build(Net(1).to('cuda'))\n"
    new = edited(
        source,
        WrapExpression(expression(source, "build(Net(1).to('cuda'))"), COMPILED),
        WrapExpression(expression(source, "Net(1).to('cuda')"), Code("_.to(memory_format=1)")),
        SetKeyword(expression(source, "Net(1)"), "a", Code("2")),
        WrapExpression(expression(source, "build(Net(1).to('cuda'))"), Code("list(_)")),
    )
    assert new == ("import torch\nmodel = list(torch.compile(build(Net(1, a=2).to('cuda').to(memory_format=1))))\n")


def test_what_is_replaced_may_hold_no_other_edit() -> None:
    source = "y = f(g(x))\n"
    inner = SetKeyword(expression(source, "g(x)"), "a", Code("1"))
    outer = ReplaceExpression(expression(source, "f(g(x))"), Code("0"))
    for edits, left in (((inner, outer), "y = f(g(x, a=1))\n"), ((outer, inner), "y = 0\n")):
        result = apply(source, *edits)
        assert result.text == left
        assert [it.kind for it in result.refused] == ["conflict"]


def test_a_change_is_made_as_a_whole_or_not_at_all() -> None:
    source = "y = f(x)\nz = f(**x)\n"
    change = (
        SetKeyword(expression(source, "f(x)"), "a", Code("1")),
        SetKeyword(expression(source, "f(**x)"), "a", Code("1")),
    )
    result = apply_changes(source, [change])
    assert result.text == source
    assert [it.kind for it in result.refused] == ["hidden-arguments"]


# -- names ----------------------------------------------------------------------------------------


def wrapped_in(source: str) -> str:
    edit = WrapStatements(statement(source, "go("), statement(source, "go("), AUTOCAST)
    new = edited(source, edit)
    assert edited(new, InsertAtTop(Code("pass"))).count("import") == new.count("import")
    return new


@pytest.mark.parametrize(
    ("imports", "name"),
    [
        ("import torch", "torch.autocast"),
        ("import torch as t", "t.autocast"),
        ("from torch import autocast", "autocast"),
        ("from torch import autocast as ac", "ac"),
        ("import torch, os", "torch.autocast"),
        ("import torch.nn as nn\nimport torch", "torch.autocast"),
        ("import torch.nn", "torch.autocast"),
        ("import torch\nimport torch.nn.functional as F", "torch.autocast"),
        ("if True:\n    pass\nimport torch", "torch.autocast"),
    ],
)
def test_imports_that_the_file_has(imports: str, name: str) -> None:
    source = f"{imports}\ngo(1)\n"
    assert wrapped_in(source) == f"{imports}\nwith {name}('cuda'):\n    go(1)\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "import torch\n"),
        ('"""Doc."""\n', '"""Doc."""\n\nimport torch\n'),
        ("from __future__ import annotations\n", "from __future__ import annotations\n\nimport torch\n"),
        ("import numpy\n", "import numpy\nimport torch\n"),
        ("import numpy\nimport zmq\n", "import numpy\nimport torch\nimport zmq\n"),
        ("from torch import nn\n", "import torch\nfrom torch import nn\n"),
        ("import os\n\nfrom torch import nn\n", "import os\n\nimport torch\nfrom torch import nn\n"),
        ("import torch.nn as nn\n", "import torch\nimport torch.nn as nn\n"),
        (
            "import os\nos.environ['A'] = '1'\nfrom torch import nn\n",
            "import os\nos.environ['A'] = '1'\nimport torch\nfrom torch import nn\n",
        ),
        ("import numpy  # arrays\nx = 1\n", "import numpy  # arrays\nimport torch\nx = 1\n"),
        ("#!/usr/bin/python\n# -*- coding: utf-8 -*-\n", "#!/usr/bin/python\n# -*- coding: utf-8 -*-\nimport torch\n"),
    ],
)
def test_an_import_is_added_in_its_place(before: str, after: str) -> None:
    assert wrapped_in(f"{before}go(1)\n") == f"{after}with torch.autocast('cuda'):\n    go(1)\n"


def test_an_import_is_added_once() -> None:
    source = "import os\n\ndef f():\n    go(1)\n    go(2)\n"
    edits = [WrapStatements(statement(source, it), statement(source, it), AUTOCAST) for it in ("go(1)", "go(2)")]
    assert edited(source, *edits).count("import torch") == 1


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("torch = 1\ngo(1)\n", "autocast"),
        ("def f(torch):\n    go(1)\n", "autocast"),
        ("import torch\ndef f():\n    torch = g()\n    go(1)\n", "autocast"),
    ],
)
def test_a_taken_name_is_gone_round(source: str, name: str) -> None:
    new = wrapped_in(source)
    assert "from torch import autocast\n" in new
    assert f"with {name}('cuda'):" in new


def test_where_all_names_are_taken_the_edit_is_refused() -> None:
    source = "torch = autocast = 1\ngo(1)\n"
    assert refusal(source, WrapStatements(statement(source, "go"), statement(source, "go"), AUTOCAST)) == "name-taken"


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    import torch\nexcept ImportError:\n    torch = None\ngo(1)\n",
        "if x:\n    import torch\ngo(1)\n",
        "def f():\n    import torch\n\ngo(1)\n",
    ],
)
def test_imports_that_may_not_be_in_force_are_not_trusted(source: str) -> None:
    new = apply(source, WrapStatements(statement(source, "go"), statement(source, "go"), AUTOCAST))
    if new.refused:
        assert new.refused[0].kind == "name-taken"
    else:
        assert "\nimport torch" in new.text or new.text.startswith("import torch") or "import autocast" in new.text


def test_an_import_below_the_place_is_not_used() -> None:
    source = "go(1)\nimport torch\n"
    assert apply(source, WrapStatements(statement(source, "go"), statement(source, "go"), AUTOCAST)).text == source


def test_an_import_of_the_function_itself() -> None:
    source = "def f():\n    import torch\n    go(1)\n"
    assert "    with torch.autocast('cuda'):\n        go(1)\n" in wrapped_in(source)


def test_names_that_earlier_cells_imported() -> None:
    source = "go(1)\n"
    change = (WrapStatements(statement(source, "go"), statement(source, "go"), AUTOCAST),)
    result = apply_changes(source, [change], given={"t": "torch", "go": ""})
    assert result.text == "with t.autocast('cuda'):\n    go(1)\n"


def test_names_that_do_not_exist_are_never_written() -> None:
    source = "def f(device):\n    go(1)\n\ngo(2)\n"
    code = Code("print(device)")
    assert "print(device)" in edited(source, InsertBefore(statement(source, "go(1)"), code))
    assert refusal(source, InsertBefore(statement(source, "go(2)"), code)) == "unknown-name"


def test_keywords_of_needed_names_are_no_names() -> None:
    source = "import torch\ngo(1)\n"
    code = Code("torch.f(torch=torch.x, a=b.torch)", needs=("torch",))
    new = edited(f"b = 1\n{source}", InsertBefore(statement(f"b = 1\n{source}", "go"), code))
    assert "torch.f(torch=torch.x, a=b.torch)" in new


def test_submodules_that_come_with_torch_do() -> None:
    import torch

    from hotlap.source.edits.names import _COME_WITH

    for name in sorted(_COME_WITH["torch"]):
        found = torch
        for part in name.split("."):
            found = getattr(found, part)
