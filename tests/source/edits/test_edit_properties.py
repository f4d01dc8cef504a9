"""What must hold for edits of any source: it parses, other lines stay, and a second time nothing changes."""

from __future__ import annotations

import ast
import random
import warnings

from hypothesis import given, settings
from hypothesis import strategies as st

from hotlap.source.edits.apply import apply_changes
from hotlap.source.edits.kinds import (
    Code,
    Edit,
    InsertAfter,
    InsertAtTop,
    InsertBefore,
    RemoveKeyword,
    RemoveStatement,
    ReplaceExpression,
    SetKeyword,
    Span,
    Unwrap,
    WrapExpression,
    WrapStatements,
)

CALLS = (
    "g(x)", "g(\n{i}    x,\n{i}    a=1,  # one\n{i})", "g(*x, **y)", "g(z for z in x)", "x.h(g(1), k=(2))", "g( )",
    'g("""é\n  x""", a=1)', "(\n{i}    g(x)\n{i})", "[g(v, 1,) for v in x]", "(g(1) if x else -g(2) ** 2)",
)  # fmt: skip
HEADS = ("if x:", "while x:", "for v in x:", "with x:", "def f{n}(x, y):", "class C{n}:", "try:")
TOPS = ("", '"""Doc."""\n', "# note\nimport os\n", "from __future__ import annotations\nimport torch as t\n")


@st.composite
def sources(draw: st.DrawFn) -> str:
    """Files of nested blocks and statements in many layouts."""
    random_of = random.Random(draw(st.integers(0, 2**32)))
    unit = random_of.choice(("    ", "  ", "\t"))
    counter = iter(range(1000))

    def block(depth: int) -> list[str]:
        indent, lines = unit * depth, []
        for _ in range(random_of.randint(1, 3)):
            if random_of.random() < 0.3:
                lines.append(random_of.choice(("", f"{indent}# é note")))
            kind = random_of.random()
            call = random_of.choice(CALLS).replace("{i}", indent)
            if kind < 0.35 and depth < 3:
                head = random_of.choice(HEADS).replace("{n}", str(next(counter)))
                if random_of.random() < 0.2 and head != "try:":
                    lines.append(f"{indent}{head} a = {call}; b = 1  # suite")
                    continue
                lines += [indent + head, *block(depth + 1)]
                if head == "try:":
                    lines += [f"{indent}finally:", *block(depth + 1)]
            elif kind < 0.5:
                lines.append(f"{indent}a = {call}; b = 2;")
            else:
                lines.append(f"{indent}r = {call}" + random_of.choice(("", "  # tail")))
        return lines

    text = random_of.choice(TOPS) + "\n".join(block(0)) + random_of.choice(("", "\n", "\n\n"))
    ast.parse(text)
    return text.replace("\n", random_of.choice(("\n", "\n", "\r\n")))


@st.composite
def edits_of(draw: st.DrawFn, text: str) -> list[Edit]:
    """Some edits of each kind at random places of the text."""
    nodes = list(ast.walk(ast.parse(text)))
    calls = [Span.of(it) for it in nodes if isinstance(it, ast.Call)]
    values = [Span.of(it) for it in nodes if isinstance(it, (ast.Call, ast.Name)) and not _is_stored(it)]
    places = [Span.of(it) for it in nodes if isinstance(it, ast.stmt)]
    blocks = [it for node in nodes for it in _blocks(node)]
    withs = [Span.of(it) for it in nodes if isinstance(it, ast.With)]
    code = Code("torch.f(1)", needs=("torch.f",))
    kinds: list[st.SearchStrategy[Edit]] = [
        st.builds(SetKeyword, st.sampled_from(calls), st.sampled_from(("a", "q")), st.just(Code("7"))),
        st.builds(RemoveKeyword, st.sampled_from(calls), st.sampled_from(("a", "k"))),
        st.builds(ReplaceExpression, st.sampled_from(values), st.sampled_from((Code("1 + 2"), code))),
        st.builds(
            WrapExpression,
            st.sampled_from(values),
            st.sampled_from((Code("torch.f(_)", ("torch.f",)), Code("_.cuda()"), Code("[_]"))),
        ),
        st.builds(InsertBefore, st.sampled_from(places), st.just(Code("n = 1"))),
        st.builds(InsertAfter, st.sampled_from(places), st.just(Code("if True:\n  n = 1"))),
        st.builds(RemoveStatement, st.sampled_from(places)),
        st.just(InsertAtTop(code)),
    ]
    if withs:
        kinds.append(st.builds(Unwrap, st.sampled_from(withs)))
    block = draw(st.sampled_from(blocks))
    ends = sorted(draw(st.tuples(*[st.integers(0, len(block) - 1)] * 2)))
    kinds.append(st.just(WrapStatements(Span.of(block[ends[0]]), Span.of(block[ends[1]]), code)))
    return draw(st.lists(st.one_of(kinds), min_size=1, max_size=6))


def _is_stored(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    fields = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
    found = [it for it in fields if isinstance(it, list) and it]
    return [] if isinstance(node, ast.Lambda) else found


@settings(max_examples=120)
@given(st.data())
def test_every_result_parses_and_nothing_is_half_done(data: st.DataObject) -> None:
    text = data.draw(sources())
    edits = data.draw(edits_of(text))
    result = apply_changes(text, [(it,) for it in edits])
    with warnings.catch_warnings(action="ignore"):  # that an integer is called, and the like
        compile(result.text, "edited", "exec", dont_inherit=True)
    refused = {it.index for it in result.refused}
    if len(refused) == len(edits):
        assert result.text == text
    kept = [it for number, it in enumerate(edits) if number not in refused]
    again = apply_changes(text, [(it,) for it in kept])
    assert again.text == result.text and not again.refused
    together = apply_changes(text, [tuple(kept)])
    assert together.text == result.text


@settings(max_examples=60)
@given(st.data())
def test_one_edit_leaves_all_other_lines_alone(data: st.DataObject) -> None:
    text = data.draw(sources())
    calls = [it for it in ast.walk(ast.parse(text)) if isinstance(it, ast.Call)]
    call = data.draw(st.sampled_from(calls))
    new = apply_changes(text, [(SetKeyword(Span.of(call), "q", Code("7")),)])
    if new.refused:
        assert new.text == text
        return
    assert call.end_lineno is not None
    old_lines, new_lines = text.split("\n"), new.text.split("\n")
    assert new_lines[: call.lineno - 1] == old_lines[: call.lineno - 1]
    below = len(old_lines) - call.end_lineno
    assert new_lines[len(new_lines) - below :] == old_lines[len(old_lines) - below :]
    found = [it for it in ast.walk(ast.parse(new.text)) if isinstance(it, ast.Call)]
    assert sum(any(k.arg == "q" and ast.unparse(k.value) == "7" for k in it.keywords) for it in found) == 1


@settings(max_examples=60)
@given(st.data())
def test_setting_keywords_twice_is_setting_them_once(data: st.DataObject) -> None:
    text = data.draw(sources())

    def changes(of: str) -> list[tuple[Edit]]:
        calls = [it for it in ast.walk(ast.parse(of)) if isinstance(it, ast.Call) and ast.unparse(it.func) == "g"]
        return [(SetKeyword(Span.of(it), "q", Code("7")),) for it in calls]

    once = apply_changes(text, changes(text)).text
    assert apply_changes(once, changes(once)).text == once


@settings(max_examples=60)
@given(st.data())
def test_a_region_changes_nothing_but_its_depth(data: st.DataObject) -> None:
    text = data.draw(sources())
    blocks = [it for node in ast.walk(ast.parse(text)) for it in _blocks(node)]
    block = data.draw(st.sampled_from(blocks))
    new = apply_changes(text, [(WrapStatements(Span.of(block[0]), Span.of(block[-1]), Code("len('k')")),)])
    if new.refused:  # an elif, or a docstring's block before imports
        assert new.text == text
        return
    regions = [it for it in ast.walk(ast.parse(new.text)) if isinstance(it, ast.With)]
    (region,) = [it for it in regions if ast.unparse(it.items[0]) == "len('k')"]
    assert [ast.dump(it) for it in region.body] == [ast.dump(it) for it in block]
    dissolved = apply_changes(new.text, [(Unwrap(Span.of(region)),)]).text
    assert ast.dump(ast.parse(dissolved)) == ast.dump(ast.parse(text))
