"""Wrap forward pass and loss in a ``with``, from the first forward to the last statement that computes the loss."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from hotlap.records import CallSite, ForwardRegion
from hotlap.source.edits.kinds import Code as NewCode
from hotlap.source.edits.kinds import InsertBefore, ReplaceExpression, Span, WrapStatements
from hotlap.source.patch.code import Code, Edits, NotPossible, Sources, last_part, names_read
from hotlap.source.patch.devices import for_device

_NAMES = ("loss", "training_loss", "forward_loss")


@dataclass(frozen=True, slots=True)
class Backward:
    """A call of backward: the expression of the loss, and the statement."""

    code: Code
    call: ast.Call
    loss: ast.expr
    statement: ast.stmt


def edits_for(sources: Sources, change: ForwardRegion) -> Edits:
    """Insert a region before each backward. Raises :class:`NotPossible`."""
    backwards = [found for it in sources.sites("backward") for found in [backward_of(sources, it)]]
    if not backwards:
        raise NotPossible("No line was seen that calls backward.")
    forwards = _forwards(sources)
    edits: Edits = []
    covered: set[ast.Call] = set()
    for it in backwards:
        covered |= {call for code, call in forwards if _already(code, call, change.already)}
        edits += _around(sources, it, forwards, covered, change)
    missed = [(code, call) for code, call in forwards if call not in covered]
    if missed:
        code, call = missed[0]
        raise NotPossible(f"The forward in line {call.lineno} of {code.path.name} leads to no observed backward.")
    return edits


def backward_of(sources: Sources, site: CallSite) -> Backward:
    """Find the backward at a site. Raises :class:`NotPossible` if a library calls it."""
    code, call = sources.of_site(site, "The backward pass")
    if last_part(call.func) not in ("backward", "manual_backward"):
        raise NotPossible(f"{code.text(call.func)} in line {call.lineno} calls backward inside a library.")
    assert isinstance(call.func, (ast.Attribute, ast.Name))
    loss = call.args[0] if call.args else call.func.value if isinstance(call.func, ast.Attribute) else None
    if loss is None or isinstance(loss, ast.Starred):
        raise NotPossible(f"What backward is called on in line {call.lineno} cannot be determined.")
    return Backward(code, call, _unscaled(loss), code.statement(call))


def _unscaled(loss: ast.expr) -> ast.expr:
    """The loss in ``scaler.scale(loss)``."""
    if isinstance(loss, ast.Call) and last_part(loss.func) == "scale" and len(loss.args) == 1:
        return loss.args[0]
    return loss


def _forwards(sources: Sources) -> list[tuple[Code, ast.Call]]:
    found = [sources.of_site(it, f"The call of {it.what}") for it in sources.sites("model")]
    if not found:
        raise NotPossible("No line was seen that calls the model.")
    return list(dict.fromkeys(found))


def _already(code: Code, node: ast.AST, name: str) -> bool:
    """Whether the node is in such a region."""
    return any(
        isinstance(it, ast.With) and any(name and name in code.text(item.context_expr) for item in it.items)
        for it in code.above(node)
    )


# -- one region -----------------------------------------------------------------------------------


def _around(
    sources: Sources,
    backward: Backward,
    forwards: Sequence[tuple[Code, ast.Call]],
    covered: set[ast.Call],
    change: ForwardRegion,
) -> Edits:
    code = backward.code
    context = NewCode(change.context, change.needs)
    inside = [call for it, call in forwards if it is code and backward.statement in (call, *code.above(call))]
    if inside:
        covered.update(inside)
        return _split(backward, for_device(sources, code, backward.statement, inside[0], context))
    block, end = _block_with_forward(backward, forwards, covered)
    if block is None:
        return []
    stop = block.index(end)
    loss_ends = _last_binding(code, block, stop, backward)
    own = [call for it, call in forwards if it is code and code.part_of(block[:stop], call) and call not in covered]
    starts = [part for call in own if (part := code.part_of(block[:stop], call)) is not None]
    begin = min([block.index(it) for it in starts] + ([loss_ends] if not starts else []))
    last = max([loss_ends, *(block.index(it) for it in starts)])
    _check_run(sources, code, block[begin : last + 1])
    covered.update(own)
    covered.update(_called_from(code, block[begin : last + 1], forwards))
    if _already(code, block[begin], change.already) or _is_region(code, block[begin : last + 1], change.already):
        return []
    context = for_device(sources, code, block[begin], own[0] if own else None, context)
    return [(code.path, WrapStatements(Span.of(block[begin]), Span.of(block[last]), context))]


def _block_with_forward(
    backward: Backward, forwards: Sequence[tuple[Code, ast.Call]], covered: set[ast.Call]
) -> tuple[list[ast.stmt] | None, ast.stmt]:
    """The innermost block around the backward in which a forward, or a call that leads to one, comes before it; None
    where all its forwards are in a region already."""
    code, statement = backward.code, backward.statement
    while True:
        block = code.block(statement)
        before = block[: block.index(statement)]
        direct = [call for it, call in forwards if it is code and code.part_of(before, call)]
        if direct and all(it in covered for it in direct):
            return None, statement
        if direct or _called_from(code, before, forwards):
            return block, statement
        owner = code.owner(statement)
        if not isinstance(owner, (ast.If, ast.With, ast.Try, ast.For, ast.While)):
            raise NotPossible(
                f"What backward in line {backward.call.lineno} is called on is computed in another function."
            )
        statement = owner


def _called_from(
    code: Code, statements: Sequence[ast.stmt], forwards: Sequence[tuple[Code, ast.Call]]
) -> list[ast.Call]:
    """The forwards within functions that these statements call by name."""
    called = {
        last_part(it.func)
        for statement in statements
        for it in [statement, *code.within(statement)]
        if isinstance(it, ast.Call)
    }
    return [call for it, call in forwards if getattr(it.function(call), "name", None) in called]


def _last_binding(code: Code, block: Sequence[ast.stmt], stop: int, backward: Backward) -> int:
    """The last statement before the backward that assigns the loss."""
    wanted = names_read(backward.loss)
    for position in range(stop - 1, -1, -1):
        nodes = [block[position], *code.within(block[position])]
        bound = {it.id for it in nodes if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store)}
        bound |= {_base(it) for it in nodes if isinstance(it, (ast.Attribute, ast.Subscript)) and _stores(it)}
        if bound & wanted:
            return position
    raise NotPossible(f"Where the loss of line {backward.call.lineno} is computed cannot be determined.")


def _base(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _stores(node: ast.Attribute | ast.Subscript) -> bool:
    return isinstance(node.ctx, ast.Store)


def _check_run(sources: Sources, code: Code, run: Sequence[ast.stmt]) -> None:
    """Raise :class:`NotPossible` if the statements contain another backward or an update."""
    for role in ("backward", "step"):
        for site in sources.sites(role):
            if site.file == str(code.path) and code.part_of(run, code.call_at(site)) is not None:
                raise NotPossible(f"Between forward and loss, {role} is called in line {site.line}.")


def _is_region(code: Code, run: Sequence[ast.stmt], name: str) -> bool:
    """Whether the statements are just such a region."""
    regions = [it for it in run if isinstance(it, ast.With)]
    return any(name and name in code.text(item.context_expr) for it in regions for item in it.items)


def _split(backward: Backward, context: NewCode) -> Edits:
    """``criterion(model(x), y).backward()``: move the loss to a separate statement."""
    code, statement = backward.code, backward.statement
    if not isinstance(statement, ast.Expr) or statement.value is not backward.call:
        raise NotPossible(f"Forward and backward in line {backward.call.lineno} are parts of one expression.")
    used = {it.id for it in code.of(ast.Name)}
    used |= {it.arg for it in code.of(ast.arg)}
    name = next((it for it in _NAMES if it not in used), "")
    if not name:
        raise NotPossible(f"There is no free name for the loss of line {backward.call.lineno}.")
    text = f"with {context.text}:\n    {name} = {code.text(backward.loss)}"
    there = tuple(names_read(backward.loss))
    return [
        (code.path, InsertBefore(Span.of(statement), NewCode(text, context.needs, there))),
        (code.path, ReplaceExpression(Span.of(backward.loss), NewCode(name, knows=(name,)))),
    ]
